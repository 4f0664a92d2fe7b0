#include "model/families.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace temper {
namespace {

struct Family {
  std::string_view architecture;  // the class in "architectures"
  std::string_view model_type;    // used if the file names no class
  FamilyReader* read;
};

#define TEMPER_FAMILY(architecture, model_type, reader) {#architecture, #model_type, reader},
constexpr Family kFamilies[] = {
#include "model/family_list.inc"
};
#undef TEMPER_FAMILY

// The class name in "architectures", else "model_type".
struct Named {
  std::string architecture, model_type;
};
Named NameOf(const Json& config) {
  const auto list = config.find("architectures");
  if (list != config.end() && list->is_array() && !list->empty() && list->front().is_string()) {
    return {.architecture = list->front().get<std::string>()};
  }
  const auto type = config.find("model_type");
  return {.model_type = type != config.end() && type->is_string() ? type->get<std::string>() : ""};
}

}  // namespace

Result<std::unique_ptr<Model>> ModelFromConfig(const Json& config, const std::string& where) {
  if (!config.is_object()) return Corrupt(where + ": should be a JSON object");
  if (config.contains("quantization_config") && !config["quantization_config"].is_null()) {
    return Unsupported(where + ": quantised models cannot be trained; use the original weights");
  }
  if (config.contains("per_layer_config") && !config["per_layer_config"].is_null()) {
    return Unsupported(where + ": per_layer_config (sizes that differ by layer) is not supported");
  }
  const Named named = NameOf(config);
  std::string known;
  for (const Family& family : kFamilies) {
    const bool same =
        named.architecture.empty() ? named.model_type == family.model_type : named.architecture == family.architecture;
    if (same) return family.read(config, where);
    if (!known.empty()) known += &family == std::end(kFamilies) - 1 ? " and " : ", ";
    known += family.architecture;
  }
  return Unsupported(fmt::format("{}: architecture '{}' is not supported; supported are {}", where,
                                 named.architecture.empty() ? named.model_type : named.architecture, known));
}

}  // namespace temper
