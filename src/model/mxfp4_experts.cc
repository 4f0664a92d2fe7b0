#include "model/mxfp4_experts.h"

#include <nlohmann/json.hpp>

namespace temper {

bool HasMxfp4Experts(const Json& config) {
  const auto it = config.find("quantization_config");
  if (it == config.end() || !it->is_object() || !it->contains("quant_method")) return false;
  return (*it)["quant_method"] == "mxfp4" && config.contains("model_type") && config["model_type"] == "gpt_oss";
}

std::vector<std::string> ModulesNotInMxfp4(const Json& config) {
  std::vector<std::string> names;
  if (!HasMxfp4Experts(config)) return names;
  const Json& quantisation = config["quantization_config"];
  const auto it = quantisation.find("modules_to_not_convert");
  if (it == quantisation.end() || !it->is_array()) return names;
  for (const Json& name : *it) {
    if (name.is_string()) names.push_back(name.get<std::string>());
  }
  return names;
}

}  // namespace temper
