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

}  // namespace temper
