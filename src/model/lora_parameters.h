// Modules of earlier classes that are parameters today: how names in a LoRA configuration become names of parameters.
#pragma once

#include <string>
#include <vector>

#include "format/lora_config.h"
#include "model/weight.h"

namespace temper {

inline constexpr int64_t kMaxLoraRank = 1 << 16;  // wider than any model; keeps products of sizes from overflowing

// `config` by the names that parameters of today's classes have: target_modules may name modules of older classes that
// are parameters now (the matrices of experts, routers), and all-linear means them, too. They become target_parameters,
// as PEFT converts them, and ranks of what is fused follow. `config` itself for models without such parameters. Errors:
// one of the modules that a parameter fuses, and not the others; an expression that matches modules of some layers
// alone, whose names PEFT would take in all, unless `file` is given (ResolveLora).
Result<LoraConfig> WithParameters(const std::vector<LinearModule>& modules, const LoraConfig& config,
                                  const std::string& file = "");

}  // namespace temper
