#include "model/quantisation_config.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "format/json.h"
#include "model/mxfp4_experts.h"

namespace temper {

bool IsStoredAsNf4(const Json& config) {
  const auto it = config.find("quantization_config");
  return it != config.end() && !it->is_null() && !HasMxfp4Experts(config);
}

void TakeQuantisation(const Json& config, Json* text) {
  const auto it = config.find("quantization_config");
  if (it != config.end() && !it->is_null()) (*text)["quantization_config"] = *it;
}

Status CheckQuantisation(const Json& config, const std::string& where) {
  if (!IsStoredAsNf4(config)) return OkStatus();
  const Json& q = config["quantization_config"];
  for (const auto& [key, read] : {std::pair<const char*, Json>{"quant_method", "bitsandbytes"},
                                  {"load_in_4bit", true},
                                  {"bnb_4bit_quant_type", "nf4"},
                                  {"bnb_4bit_use_double_quant", true}}) {
    const Json found = q.is_object() && q.contains(key) ? q[key] : Json();
    if (found == read) continue;
    return Unsupported(fmt::format(
        "{}: quantization_config has {}: {}, but of quantised models those with {} are read (and experts of "
        "gpt_oss in mxfp4): use the original weights, with base_dtype: nf4 or int8 for less memory",
        where, key, DumpJson(found).substr(0, 40), DumpJson(read)));
  }
  return OkStatus();
}

}  // namespace temper
