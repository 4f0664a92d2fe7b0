// adapter_config.json: what PEFT writes beside a LoRA adapter's tensors. Only what Temper honours is kept; settings
// that would change the result and that Temper does not have (DoRA, trained biases, modules_to_save, ...) are refused.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/env.h"

namespace temper {

struct AdapterConfig {
  std::string base_model;  // base_model_name_or_path
  int64_t r = 8;
  double alpha = 8, dropout = 0;
  bool rslora = false;
  // Exactly one of the two is not empty: a regex over whole module paths, or names (a path equals one or ends with
  // "." + one).
  std::string target_regex;
  std::vector<std::string> target_modules;
  // At most one of the two is not empty; as above.
  std::string exclude_regex;
  std::vector<std::string> exclude_modules;
  std::vector<std::pair<std::string, int64_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;
};

inline constexpr char kAdapterConfigFile[] = "adapter_config.json";
inline constexpr char kAdapterWeightsFile[] = "adapter_model.safetensors";

Result<AdapterConfig> ReadAdapterConfig(Env& env, const std::string& path);
// The keys that long-lived versions of PEFT read, sorted, indented by 2.
std::string FormatAdapterConfig(const AdapterConfig& config);

}  // namespace temper
