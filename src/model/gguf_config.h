// The other way round than gguf_description.h: a config.json from the keys and tensors of a GGUF file, for the
// architectures of which one family of Temper is the usual one.
#pragma once

#include <nlohmann/json.hpp>

#include "format/gguf/gguf_file.h"
#include "format/gguf/gguf_tensor.h"
#include "format/json.h"

namespace temper {

// kUnsupported: an architecture without a family here, or sizes that differ from layer to layer.
Result<Json> ConfigOfGguf(const GgufFile& file);

// That `model`, described as for an export of the configuration above, is what `file` has: the same tensors and shapes,
// and no key that says otherwise or is not known. Names what differs.
Status CheckGgufModel(const GgufFile& file, const GgufModel& model);

}  // namespace temper
