// LoRA (Hu et al. 2021) with PEFT's semantics, as a rewrite of a forward graph:
//   linear(x, W)  becomes  linear(x, W) + s * linear(linear(dropout(x), A), B),  W frozen,
// s = alpha / r, or alpha / sqrt(r) for rank-stabilised LoRA. On the head the branch becomes linear_cross_entropy's
// second pair of operands. In a fused projection, each value has its own rows of B; all share A and the dropout of x.
// Adapter values have PEFT's tensor names.
#pragma once

#include <string>
#include <vector>

#include "format/lora_config.h"
#include "format/lora_module.h"
#include "graph/graph.h"
#include "model/weight.h"

namespace temper {

// `config` by the names that parameters of today's classes have: target_modules may name modules of older classes that
// are parameters now (the matrices of experts, routers), and all-linear means them, too. They become target_parameters,
// as PEFT converts them, and so do ranks of what is fused. `config` itself for models without such parameters. Error:
// one of the modules that a parameter fuses, and not the others.
Result<LoraConfig> WithParameters(const std::vector<LinearModule>& modules, const LoraConfig& config);

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

// REQUIRES: `targets` from ResolveLora on modules of the same model. Dropout 0 adds no dropout node.
Graph AddLora(Graph forward, const std::vector<LoraModule>& targets, double dropout);

}  // namespace temper
