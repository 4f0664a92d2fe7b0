// The weights of any kind of model folder, including a full checkpoint that several ranks have written, whose weights
// are stored in slices in the ranks' files.
#pragma once

#include <map>
#include <span>
#include <string>

#include "base/env.h"
#include "format/model_weights.h"

namespace temper {

// As ModelWeights::Open, and for a checkpoint without model.safetensors from its slices.
Result<ModelWeights> OpenModelWeights(Env& env, const std::string& folder);
// The same for a model that has `tensors`, which the folder may have in other tensors (ModelWeights::StackMatrices).
Result<ModelWeights> OpenModelWeights(Env& env, const std::string& folder, std::span<const FileTensor> tensors);

// Assembles the weights of a full checkpoint as one model.safetensors at `path`, rounded from f32 to `dtype`, and
// verifies every checksum. `others`: tensors of other files that go into it as they are. Returns ChecksumHex of the
// file. Durable when it returns OK; memory: 1.5 MiB.
Result<std::string> JoinWeights(Env& env, const std::string& checkpoint, const std::string& path, DType dtype,
                                std::span<const ModelWeights::Entry> others = {});

// The same of the moving averages of what was trained, also by a checkpoint of an adapter. `twins`: names under which
// the checkpoint has a tensor once more, each with the name of that tensor. REQUIRES: its run kept averages.
Result<std::string> JoinAverages(Env& env, const std::string& checkpoint, const std::string& path, DType dtype,
                                 const std::map<std::string, std::string>& twins,
                                 std::span<const ModelWeights::Entry> others = {});

}  // namespace temper
