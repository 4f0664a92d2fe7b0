// The model that an adapter was trained on, or whose other tensors a multimodal run goes on with: base.json, beside the
// adapter and in checkpoints. A base that has changed since, such as a branch that `hf download` has moved, has the
// same shapes: only its numbers tell. Folders without the file, such as PEFT's, are not compared.
#pragma once

#include <string>

#include "base/env.h"
#include "format/model_weights.h"

namespace temper {

inline constexpr char kBaseFile[] = "base.json";

// The text of base.json. Reads 64 samples of the weights.
Result<std::string> DescribeBase(const ModelWeights& base);
// kInvalidArgument if `text`, that of the base.json at `where`, describes other weights than `base`. The error names
// both; the caller adds the remedy.
Status CheckBase(const std::string& text, const std::string& where, const ModelWeights& base);

}  // namespace temper
