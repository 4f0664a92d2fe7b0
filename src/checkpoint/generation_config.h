// generation_config.json, with which transformers generates: among others the tokens that end an answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/env.h"

namespace temper {

inline constexpr char kGenerationConfigFile[] = "generation_config.json";

// The text of this file with which a model of `model_folder` also stops at token `id`; nullopt if it does anyway.
Result<std::optional<std::string>> GenerationConfigStoppingAt(Env& env, const std::string& model_folder, int32_t id);

// How transformers samples by default with a model.
struct GenerationDefaults {
  bool samples = false;    // do_sample; else the most probable token
  double temperature = 1;  // if it samples
  std::optional<int64_t> top_k;
  std::optional<double> top_p, min_p, repetition_penalty;
};

// Those of this file, and where it samples those of transformers 5.24 (top_k 50). Errors: a file that is not what it
// should be.
Result<GenerationDefaults> ReadGenerationDefaults(Env& env, const std::string& model_folder);

}  // namespace temper
