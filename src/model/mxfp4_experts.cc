#include "model/mxfp4_experts.h"

#include <nlohmann/json.hpp>

namespace temper {

bool HasMxfp4Experts(const Json& config) {
  const auto it = config.find("quantization_config");
  if (it == config.end() || !it->is_object() || !it->contains("quant_method")) return false;
  return (*it)["quant_method"] == "mxfp4" && config.contains("model_type") && config["model_type"] == "gpt_oss";
}

}  // namespace temper
