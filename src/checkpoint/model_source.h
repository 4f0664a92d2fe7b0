// Resolves --model: a model folder, an adapter folder, the
// output folder of a run, or one of its checkpoints.
#pragma once

#include <string>
#include <vector>

#include "base/env.h"

namespace temper {

struct ModelSource {
  std::string model_folder;    // config.json, tokenizer and weights (what OpenModelWeights takes)
  std::string adapter_folder;  // adapter_config.json and adapter_model.safetensors; empty: none
  std::string checkpoint;      // the given or chosen checkpoint folder (the model's or the adapter's); empty: none
  bool model_is_checkpoint =
      false;  // model_folder is a full checkpoint: its weights are f32 masters, whatever its config says
  std::vector<std::string> notices;  // which of several possibilities was chosen, for the user
};

struct ModelSourceRequest {
  std::string model;               // as the user gave it
  const char* option = "--model";  // its name, for messages
  std::string base;                // overrides the adapter's base_model_name_or_path; empty: as that says
  bool needs_weights = true;       // false: config.json is enough (plan, training from scratch)
};

// OUT stands for the finished adapter or model at its top level, else for its newest checkpoint. A base may be anything
// but an adapter. A relative base is searched in the current folder, then beside the adapter. Errors list the places
// searched; the name of a Hub repository is answered with how to download it.
Result<ModelSource> ResolveModelSource(Env& env, const ModelSourceRequest& request);

}  // namespace temper
