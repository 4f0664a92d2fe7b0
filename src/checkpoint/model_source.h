// Resolves --model: a model folder, a GGUF file, an adapter folder, the output folder of a run, one of its checkpoints,
// or the name of a model or adapter in the Hugging Face cache.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/env.h"
#include "format/hub_cache.h"

namespace temper {

struct ModelSource {
  std::string model_folder;          // config.json, tokenizer and weights (what OpenModelWeights takes)
  std::optional<HubName> hub_model;  // that model_folder is the cached snapshot of
  std::string gguf_file;             // that model_folder stands for; empty: none
  std::string adapter_folder;        // adapter_config.json and adapter_model.safetensors; empty: none
  std::string checkpoint;  // the given or chosen checkpoint folder (the model's or the adapter's); empty: none
  bool model_is_checkpoint =
      false;  // model_folder is a full checkpoint: its weights are f32 masters, whatever its config says
  std::vector<std::string> notices;  // which of several possibilities was chosen, for the user
};

struct ModelSourceRequest {
  std::string model;               // as the user gave it
  const char* option = "--model";  // its name, for messages
  std::string base;                // overrides the adapter's base_model_name_or_path; empty: as that says
  bool needs_weights = true;       // false: config.json is enough (plan, training from scratch)
  // Makes a model folder that stands for a GGUF file; null: such files are refused.
  std::function<Result<std::string>(const std::string& path)> folder_of_gguf = nullptr;
};

// A folder goes before a name in the cache. OUT stands for the finished adapter or model at its top level, else for its
// newest checkpoint. A base may be anything but an adapter. A relative base is searched in the current folder, then
// beside the adapter, then in the cache. Errors list the places searched; the name of a repository that is not in the
// cache is answered with how to fetch it.
Result<ModelSource> ResolveModelSource(Env& env, const ModelSourceRequest& request);

// The same without looking into it: a file or folder itself, or the snapshot that a name means.
Result<std::string> FindModelPath(Env& env, const std::string& given);

}  // namespace temper
