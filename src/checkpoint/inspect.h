// `temper inspect PATH`: what is in a safetensors file, model folder, adapter, checkpoint or output folder, and whether
// it is valid.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/env.h"

namespace temper {

// Without any of these the output fits a screen: the largest tensors, and of an output folder a line per checkpoint.
struct InspectOptions {
  bool all = false;           // all tensors, those whose names differ in numbers as one; checkpoints in full
  bool list_tensors = false;  // the same, with every tensor
  bool json = false;          // one JSON object instead of lines, with every tensor
};

// Prints line by line (without "\n"); prints what it found before it returns an error. OK only if all is valid: for
// checkpoints every checksum, for others every header, and that config.json and the weights are readable. Callers that
// know the model check whether config.json describes these weights.
Status Inspect(Env& env, const std::string& path, const InspectOptions& options,
               const std::function<void(std::string_view line)>& print);

}  // namespace temper
