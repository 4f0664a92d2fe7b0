// The weights of a model folder of any kind: also of a full checkpoint that several ranks have written, whose weights
// lie in slices in the ranks' files.
#pragma once

#include <string>

#include "base/env.h"
#include "format/model_weights.h"

namespace temper {

// As ModelWeights::Open, and for a checkpoint without model.safetensors from its slices.
Result<ModelWeights> OpenModelWeights(Env& env, const std::string& folder);

// Puts the weights of a full checkpoint together as one model.safetensors at `path`, in f32 as they are stored, every
// checksum proved on the way. Durable when it returns OK; memory: 1.5 MiB.
Status JoinWeights(Env& env, const std::string& checkpoint, const std::string& path);

}  // namespace temper
