// `temper inspect PATH`: what is in a safetensors file, model folder, adapter, checkpoint or output folder, and whether
// it is valid.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/env.h"

namespace temper {

struct InspectOptions {
  bool list_tensors = false;  // every tensor, not a summary
};

// Prints line by line (without "\n"); prints what it found before it returns an error. OK only if all is valid: for
// checkpoints every checksum, for others every header, and that config.json and the weights are readable. Callers that
// know the model check whether config.json describes these weights.
Status Inspect(Env& env, const std::string& path, const InspectOptions& options,
               const std::function<void(std::string_view line)>& print);

}  // namespace temper
