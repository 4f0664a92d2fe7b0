#include "format/lora_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "format/json.h"

namespace temper {
namespace {

// That PEFT takes the part that A and B begin with out of the base's weights, whenever it loads the adapter: on the
// base as it is, A and B are too much. PEFT writes another value where it has converted such an adapter
// (save_pretrained with path_initial_model_for_weight_conversion).
bool ChangesItsBase(std::string initialization) {
  for (char& c : initialization) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));  // as PEFT does
  for (const char* prefix : {"pissa", "corda", "olora", "loftq", "lora_ga"}) {
    if (initialization.starts_with(prefix)) return true;
  }
  return false;
}

// Settings whose other values change what the adapter computes, with the value that Temper's LoRA has.
Status RefuseOtherMethods(const Json& json, const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(const std::string type, StringOr(json, "peft_type", "LORA", path));
  const auto unsupported = [&](const std::string& what) {
    return Unsupported(fmt::format("{}: {} is not supported. {}", path, what, kMergeWithPeft));
  };
  if (type != "LORA") return unsupported(fmt::format("peft_type {}", type));
  TEMPER_ASSIGN_OR_RETURN(const std::string bias, StringOr(json, "bias", "none", path));
  if (bias != "none") return unsupported(fmt::format("bias '{}'", bias));
  for (const char* key : {"lora_bias", "use_qalora"}) {
    TEMPER_ASSIGN_OR_RETURN(const bool on, BoolOr(json, key, false, path));
    if (on) return unsupported(key);
  }
  for (const char* key : {"layer_replication", "alora_invocation_tokens", "arrow_config", "kasa_config",
                          "monteclora_config", "use_bdlora"}) {
    if (json.contains(key) && !json[key].empty()) return unsupported(key);
  }
  if (const auto it = json.find("init_lora_weights"); it != json.end() && it->is_string()) {
    const auto& initialization = it->get_ref<const std::string&>();
    if (ChangesItsBase(initialization)) return unsupported(fmt::format("init_lora_weights '{}'", initialization));
  }
  return OkStatus();
}

// An empty text is no regex but an empty list.
Result<LoraConfig::Modules> ModulesOr(const Json& json, const char* key, const std::string& path) {
  std::vector<std::string> names;
  if (!json.contains(key) || json[key].is_null()) return LoraConfig::Modules(names);
  if (json[key].is_string()) {
    auto text = json[key].get<std::string>();
    return text.empty() ? LoraConfig::Modules(names) : LoraConfig::Modules(std::move(text));
  }
  for (const Json& name : json[key]) {
    if (!name.is_string()) return Corrupt(fmt::format("{}: {} should be a list of names", path, key));
    names.push_back(name.get<std::string>());
  }
  return LoraConfig::Modules(names);
}

// Of a file that anybody may have written: each pattern is compiled, each layer looked for in every module.
constexpr int64_t kMostLayers = 1 << 16;
constexpr size_t kMostLayerPatterns = 64;
constexpr int64_t kMostSavedNames = 1 << 12;

Result<std::vector<std::string>> NamesOr(const Json& json, const char* key, const std::string& path) {
  std::vector<std::string> names;
  const auto it = json.find(key);
  if (it == json.end() || it->is_null()) return names;
  if (!it->is_array()) return Corrupt(fmt::format("{}: {} should be a list of names", path, key));
  for (const Json& name : *it) {
    if (!name.is_string()) return Corrupt(fmt::format("{}: {} should be a list of names", path, key));
    names.push_back(name.get<std::string>());
  }
  if (std::ssize(names) > kMostSavedNames) {
    return Corrupt(fmt::format("{}: {} lists {} names; at most {} are read", path, key, names.size(), kMostSavedNames));
  }
  return names;
}

// A number stands for a list of it.
Result<std::vector<int64_t>> LayersOr(const Json& json, const std::string& path) {
  std::vector<int64_t> layers;
  const auto it = json.find("layers_to_transform");
  if (it == json.end() || it->is_null()) return layers;
  for (const Json& layer : it->is_array() ? *it : Json::array({*it})) {
    if (!layer.is_number_integer()) {
      return Corrupt(path + ": layers_to_transform should be a number of a layer, or a list of numbers");
    }
    // Unsigned beyond int64_t would come out negative.
    if (layer < 0 || layer >= kMostLayers) {
      return Corrupt(fmt::format("{}: layers_to_transform has layer {}; layers are from 0 to {}", path, DumpJson(layer),
                                 kMostLayers - 1));
    }
    layers.push_back(layer.get<int64_t>());
  }
  if (std::ssize(layers) > kMostLayers) {
    return Corrupt(
        fmt::format("{}: layers_to_transform lists {} layers; at most {} are read", path, layers.size(), kMostLayers));
  }
  return layers;
}

Result<std::vector<int64_t>> IndicesOf(const Json& list, const std::string& path) {
  const auto bad = [&] {
    return Corrupt(path + ": trainable_token_indices should be a list of rows, or map modules to such lists");
  };
  std::vector<int64_t> indices;
  if (!list.is_array() || std::ssize(list) > kMostTokenIndices) return bad();
  for (const Json& index : list) {
    if (!index.is_number_integer() || index < 0 || index > INT32_MAX) return bad();
    indices.push_back(index.get<int64_t>());
  }
  return indices;
}

Result<LoraConfig::TokenIndices> TokenIndicesOr(const OrderedJson& json, const std::string& path) {
  LoraConfig::TokenIndices all;
  const auto it = json.find("trainable_token_indices");
  if (it == json.end() || it->is_null()) return all;
  if (!it->is_object()) {
    TEMPER_ASSIGN_OR_RETURN(std::vector<int64_t> indices, IndicesOf(Json(*it), path));
    if (!indices.empty()) all.emplace_back("", std::move(indices));
    return all;
  }
  for (const auto& [module, list] : it->items()) {
    if (module.empty() || all.size() == 16)
      return Corrupt(path + ": trainable_token_indices names no module, or too many");
    TEMPER_ASSIGN_OR_RETURN(std::vector<int64_t> indices, IndicesOf(Json(list), path));
    all.emplace_back(module, std::move(indices));
  }
  return all;
}

constexpr char kAllLinear[] = "all-linear";

const std::string& TextOf(const LoraConfig::Modules& modules) {
  static const std::string none;
  const auto* text = std::get_if<std::string>(&modules);
  return text ? *text : none;
}

const std::vector<std::string>& NamesOf(const LoraConfig::Modules& modules) {
  static const std::vector<std::string> none;
  const auto* names = std::get_if<std::vector<std::string>>(&modules);
  return names ? *names : none;
}

// A text is one name.
std::vector<std::string> TextOrNames(const LoraConfig::Modules& modules) {
  const std::string& text = TextOf(modules);
  return text.empty() ? NamesOf(modules) : std::vector<std::string>{text};
}

}  // namespace

bool LoraConfig::all_linear() const {
  return TextOf(target_modules) == kAllLinear;
}
const std::string& LoraConfig::target_regex() const {
  static const std::string none;
  return all_linear() ? none : TextOf(target_modules);
}
const std::vector<std::string>& LoraConfig::target_names() const {
  return NamesOf(target_modules);
}
const std::string& LoraConfig::exclude_regex() const {
  return TextOf(exclude_modules);
}
const std::vector<std::string>& LoraConfig::exclude_names() const {
  return NamesOf(exclude_modules);
}

std::vector<std::string> LoraConfig::layers_patterns() const {
  return TextOrNames(layers_pattern);
}
bool LoraConfig::NamesBlocks() const {
  // Of blocks, or an expression that may match their numbers.
  const auto names = [](const std::string& text) {
    return text.find_first_of("0123456789[\\(*+?") != std::string::npos;
  };
  const auto any = [&](const std::vector<std::string>& texts) {
    return std::any_of(texts.begin(), texts.end(), names);
  };
  const auto of_pattern = [&](const auto& of) { return names(of.first); };
  return !layers_to_transform.empty() || !target_regex().empty() || !exclude_regex().empty() || any(target_names()) ||
         any(exclude_names()) || any(saved_names()) || any(parameter_names()) ||
         std::any_of(rank_pattern.begin(), rank_pattern.end(), of_pattern) ||
         std::any_of(alpha_pattern.begin(), alpha_pattern.end(), of_pattern);
}

std::vector<std::string> LoraConfig::saved_names() const {
  return TextOrNames(modules_to_save);
}
std::vector<std::string> LoraConfig::parameter_names() const {
  return TextOrNames(target_parameters);
}

Result<LoraConfig> ReadLoraConfig(Env& env, const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env, path));
  TEMPER_ASSIGN_OR_RETURN(const OrderedJson ordered, ParseOrderedJson(text, path));  // of patterns the first counts
  if (!ordered.is_object()) return Corrupt(path + ": should be a JSON object");
  const Json json(ordered);
  TEMPER_RETURN_IF_ERROR(RefuseOtherMethods(json, path));
  LoraConfig c{.r = 8, .alpha = 8};
  TEMPER_ASSIGN_OR_RETURN(c.base_model, StringOr(json, "base_model_name_or_path", "", path));
  TEMPER_ASSIGN_OR_RETURN(c.base_revision, StringOr(json, "revision", "", path));
  TEMPER_ASSIGN_OR_RETURN(c.r, IntOr(json, "r", c.r, path));
  TEMPER_ASSIGN_OR_RETURN(c.alpha, NumberOr(json, "lora_alpha", c.alpha, path));
  TEMPER_ASSIGN_OR_RETURN(c.dropout, NumberOr(json, "lora_dropout", c.dropout, path));
  TEMPER_ASSIGN_OR_RETURN(c.use_rslora, BoolOr(json, "use_rslora", false, path));
  TEMPER_ASSIGN_OR_RETURN(c.use_dora, BoolOr(json, "use_dora", false, path));
  if (c.r < 1) return Corrupt(fmt::format("{}: r is {}, should be at least 1", path, c.r));
  TEMPER_ASSIGN_OR_RETURN(c.target_modules, ModulesOr(json, "target_modules", path));
  TEMPER_ASSIGN_OR_RETURN(c.target_parameters, NamesOr(json, "target_parameters", path));
  if (c.target_modules == LoraConfig::Modules(std::vector<std::string>()) && c.parameter_names().empty()) {
    return Corrupt(path + ": target_modules is missing or empty");
  }
  TEMPER_ASSIGN_OR_RETURN(c.exclude_modules, ModulesOr(json, "exclude_modules", path));
  TEMPER_ASSIGN_OR_RETURN(c.layers_to_transform, LayersOr(json, path));
  TEMPER_ASSIGN_OR_RETURN(c.layers_pattern, ModulesOr(json, "layers_pattern", path));
  if (const size_t patterns = c.layers_patterns().size(); patterns > kMostLayerPatterns) {
    return Corrupt(
        fmt::format("{}: layers_pattern has {} patterns; at most {} are read", path, patterns, kMostLayerPatterns));
  }
  TEMPER_ASSIGN_OR_RETURN(c.modules_to_save, ModulesOr(json, "modules_to_save", path));
  if (std::ssize(c.saved_names()) > kMostSavedNames) {
    return Corrupt(fmt::format("{}: modules_to_save lists {} names; at most {} are read", path, c.saved_names().size(),
                               kMostSavedNames));
  }
  TEMPER_ASSIGN_OR_RETURN(c.trainable_token_indices, TokenIndicesOr(ordered, path));
  TEMPER_ASSIGN_OR_RETURN(c.ensure_weight_tying, BoolOr(json, "ensure_weight_tying", false, path));
  for (const char* key : {"rank_pattern", "alpha_pattern"}) {
    if (!ordered.contains(key) || ordered[key].is_null()) continue;
    for (const auto& [pattern, value] : ordered[key].items()) {
      const bool integer = std::string_view(key) == "rank_pattern";
      if (!value.is_number() || (integer && !value.is_number_integer()))
        return Corrupt(fmt::format("{}: {} should map names to numbers", path, key));
      if (integer) {
        c.rank_pattern.emplace_back(pattern, value.get<int64_t>());
      } else {
        c.alpha_pattern.emplace_back(pattern, value.get<double>());
      }
    }
  }
  return c;
}

Result<std::vector<std::string>> UnknownLoraKeys(Env& env, const std::string& path) {
  static constexpr std::string_view kKnown[] = {"alora_invocation_tokens",
                                                "alpha_pattern",
                                                "arrow_config",
                                                "auto_mapping",
                                                "base_model_name_or_path",
                                                "bias",
                                                "corda_config",
                                                "ensure_weight_tying",
                                                "eva_config",
                                                "exclude_modules",
                                                "fan_in_fan_out",
                                                "inference_mode",
                                                "init_lora_weights",
                                                "kasa_config",
                                                "layer_replication",
                                                "layers_pattern",
                                                "layers_to_transform",
                                                "loftq_config",
                                                "lora_alpha",
                                                "lora_bias",
                                                "lora_dropout",
                                                "lora_ga_config",
                                                "megatron_config",
                                                "megatron_core",
                                                "modules_to_save",
                                                "monteclora_config",
                                                "peft_type",
                                                "peft_version",
                                                "qalora_group_size",
                                                "r",
                                                "rank_pattern",
                                                "revision",
                                                "runtime_config",
                                                "target_modules",
                                                "target_parameters",
                                                "task_type",
                                                "trainable_token_indices",
                                                "use_bdlora",
                                                "use_dora",
                                                "use_qalora",
                                                "use_rslora",
                                                "velora_config"};
  TEMPER_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(env, path));
  std::vector<std::string> unknown;
  for (const auto& [key, value] : json.items()) {
    if (!std::binary_search(std::begin(kKnown), std::end(kKnown), key)) unknown.push_back(key);
  }
  return unknown;
}

std::string FormatLoraConfig(const LoraConfig& c) {
  // PEFT writes whole numbers without a fraction; keep files alike.
  const auto number = [](double x) {
    return x == static_cast<double>(static_cast<int64_t>(x)) ? Json(static_cast<int64_t>(x)) : Json(x);
  };
  const auto modules = [](const LoraConfig::Modules& m) {
    if (const std::string& text = TextOf(m); !text.empty()) return Json(text);
    std::vector<std::string> names = NamesOf(m);
    std::sort(names.begin(), names.end());
    return Json(names);
  };
  Json json = {{"auto_mapping", nullptr},
               {"base_model_name_or_path", c.base_model},
               {"bias", "none"},
               {"fan_in_fan_out", c.fan_in_fan_out},
               {"inference_mode", true},
               {"init_lora_weights", true},
               {"layers_pattern", nullptr},
               {"layers_to_transform", nullptr},
               {"lora_alpha", number(c.alpha)},
               {"lora_dropout", c.dropout},
               {"modules_to_save", nullptr},
               {"peft_type", "LORA"},
               {"r", c.r},
               {"rank_pattern", Json::object()},
               {"alpha_pattern", Json::object()},
               {"revision", c.base_revision.empty() ? Json() : Json(c.base_revision)},
               {"task_type", c.judges_sequences ? "SEQ_CLS" : "CAUSAL_LM"},
               {"use_dora", c.use_dora},
               {"target_modules", modules(c.target_modules)},
               {"use_rslora", c.use_rslora}};
  if (!c.layers_to_transform.empty()) json["layers_to_transform"] = c.layers_to_transform;
  if (const std::string& list = TextOf(c.layers_pattern); !list.empty()) json["layers_pattern"] = list;
  if (const std::vector<std::string>& lists = NamesOf(c.layers_pattern); !lists.empty()) json["layers_pattern"] = lists;
  if (const std::vector<std::string> saved = c.saved_names(); !saved.empty()) json["modules_to_save"] = saved;
  if (c.ensure_weight_tying) json["ensure_weight_tying"] = true;
  if (const Json parameters = modules(std::vector<std::string>(c.parameter_names())); !parameters.empty()) {
    json["target_parameters"] = parameters;
  }
  if (const Json excluded = modules(c.exclude_modules); !excluded.empty()) json["exclude_modules"] = excluded;
  OrderedJson ordered(json);
  for (const auto& [module, indices] : c.trainable_token_indices) {
    OrderedJson& to = ordered["trainable_token_indices"];
    (module.empty() ? to : to[module]) = indices;
  }
  for (const auto& [pattern, r] : c.rank_pattern) ordered["rank_pattern"][pattern] = r;
  for (const auto& [pattern, alpha] : c.alpha_pattern) ordered["alpha_pattern"][pattern] = number(alpha);
  return DumpJson(ordered, 2) + "\n";
}

}  // namespace temper
