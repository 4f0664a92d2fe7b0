// Which modules of a model get LoRA adapters (Hu et al. 2021), with PEFT's semantics: names, expressions, layers, ranks
// of modules and of parameters. lora_rewrite.h adds the adapters to a graph.
#pragma once

#include <string>
#include <vector>

#include "format/lora_config.h"
#include "format/lora_module.h"
#include "model/weight.h"

namespace temper {

// The modules of a model that `config` selects, in the model's order. Errors: a bad regex, a rank out of range, nothing
// selected, or a listed name that no module has (the message lists the model's names). They name the settings of a run
// or, where `file` is given, the keys of that adapter_config.json, with what is left to do with such an adapter. There
// names that no module has select nothing, as in PEFT.
Result<std::vector<LoraModule>> ResolveLora(const std::vector<LinearModule>& modules, const LoraConfig& config,
                                            const std::string& file = "");

// A line for each override or exclusion of `config` that has no effect, most often a mistyped name. PEFT accepts these
// silently. Errors: as ResolveLora.
Result<std::vector<std::string>> IdleLoraSettings(const std::vector<LinearModule>& modules, const LoraConfig& config);

// `config` with the parameters that it means (WithParameters), or where it selects or overrides by names that only
// earlier versions of the class have: the same by whole paths of today's, for a file that PEFT reads. Errors: as
// ResolveLora.
Result<LoraConfig> NamedByPaths(const std::vector<LinearModule>& modules, const LoraConfig& config);

}  // namespace temper
