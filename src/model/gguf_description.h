// A decoder as llama.cpp has it: tensors and keys of a GGUF file, by the architecture that its family names.
#pragma once

#include "format/gguf/gguf_tensor.h"
#include "model/decoder_spec.h"

namespace temper {

// Tensors name weights as the forward pass does (GgufTensor::parts, without shape and source). kUnsupported, with what
// is missing, if the family has no architecture, or the architecture does not compute the model.
Result<GgufModel> DescribeGguf(const DecoderSpec& spec);

}  // namespace temper
