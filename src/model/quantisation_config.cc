#include "model/quantisation_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/pattern.h"
#include "format/json.h"
#include "format/quoted.h"
#include "model/published_quantisation.h"
#include "tensor/format_rule.h"

namespace temper {
namespace {

constexpr std::string_view kGgufMethod = "gguf";          // tensor/gguf_rows.cc; no config.json has it
constexpr char kFormatsByModule[] = "formats_by_module";  // ours, never in a file

// Null where there is none.
const Json* QuantisationOf(const Json& config) {
  const auto it = config.find("quantization_config");
  return it == config.end() || it->is_null() ? nullptr : &*it;
}

Json ValueOf(const Json& object, std::string_view key) {
  const auto it = object.is_object() ? object.find(key) : object.end();
  return it == object.end() ? Json() : *it;
}

// Of those that files have, the one that quantization_config names; null if none is.
const FormatRule* NamedRule(const Json& config) {
  const Json* const q = QuantisationOf(config);
  if (q == nullptr) return nullptr;
  for (const FormatRule* rule : FormatRules()) {
    if (rule->stored != nullptr && ValueOf(*q, "quant_method") == rule->stored->method) return rule;
  }
  return nullptr;
}

// "bitsandbytes (nf4)", ...
std::vector<std::string> MethodsThatAreRead() {
  std::vector<std::string> methods;
  for (const FormatRule* rule : FormatRules()) {
    if (rule->stored == nullptr || rule->stored->method == kGgufMethod) continue;
    methods.push_back(fmt::format("{} ({})", rule->stored->method, rule->title));
  }
  for (std::string& method : PublishedMethods()) methods.push_back(std::move(method));
  return methods;
}

// A key that no file has.
constexpr char kExpertsToo[] = "experts, too";

constexpr char kRemedy[] = "use the original weights, with base_dtype: nf4 or int8 for less memory";

// modules_to_not_convert, under any of its names.
Json LeftBy(const Json& quantisation) {
  for (const char* key : {"modules_to_not_convert", "ignored_layers", "llm_int8_skip_modules"}) {
    if (Json names = ValueOf(quantisation, key); names.is_array()) return names;
  }
  return Json();
}

Result<std::map<std::string, ElementFormat>> FormatsByModule(const Json& quantisation, const std::string& where) {
  std::map<std::string, ElementFormat> formats;
  const Json all = ValueOf(quantisation, kFormatsByModule);
  if (!all.is_object()) return formats;
  for (const auto& [module, name] : all.items()) {
    if (!name.is_string()) return Corrupt(where + ": a format that is no name");
    TEMPER_ASSIGN_OR_RETURN(const ElementFormat format, ParseElementFormat(name.get<std::string>()));
    if (!format.quantised()) return Corrupt(where + ": a format that is not quantised");
    formats.emplace(module, format);
  }
  return formats;
}

}  // namespace

void AddFormats(const std::map<std::string, std::string>& formats, Json* config) {
  if (formats.empty()) return;
  (*config)["quantization_config"] = {{"quant_method", kGgufMethod}, {kFormatsByModule, formats}};
}

void TakeQuantisation(const Json& config, Json* text) {
  if (const Json* const q = QuantisationOf(config)) (*text)["quantization_config"] = *q;
}

Status CheckQuantisation(const Json& config, const std::string& where) {
  const Json* const q = QuantisationOf(config);
  if (q == nullptr) return OkStatus();
  TEMPER_ASSIGN_OR_RETURN(const auto published, ReadPublished(*q, where));
  if (published) return OkStatus();
  const FormatRule* const rule = NamedRule(config);
  if (rule == nullptr) {
    return Unsupported(fmt::format("{}: quantization_config has quant_method: {}, and {} are read: {}", where,
                                   DumpJson(ValueOf(*q, "quant_method")).substr(0, 40),
                                   fmt::join(MethodsThatAreRead(), ", "), kRemedy));
  }
  for (const FormatKey& key : rule->stored->keys) {
    const Json found = ValueOf(*q, key.key);
    if (found == *ParseJson(std::string(key.value), "") || (key.may_miss && found.is_null())) continue;
    return Unsupported(fmt::format("{}: quantization_config has {}: {}, but of {} models those with {} are read: {}",
                                   where, key.key, DumpJson(found).substr(0, 40), rule->stored->method, key.value,
                                   kRemedy));
  }
  TEMPER_RETURN_IF_ERROR(FormatsByModule(*q, where).status());
  if (rule->stored->of_experts) return OkStatus();  // whose modules are named whole
  for (const Json& name : LeftBy(*q)) {
    const std::string text = name.is_string() ? name.get<std::string>() : "";
    const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
    });
    if (plain) continue;
    return Unsupported(fmt::format(
        "{}: modules_to_not_convert of quantization_config has {}, and names of modules are read: write the "
        "names that it means",
        where, Quoted(DumpJson(name))));
  }
  return OkStatus();
}

void ReadStoredFormat(const Json& config, bool has_stored_experts, ModelFacts* facts) {
  if (const Json* const q = QuantisationOf(config); q != nullptr && !has_stored_experts) {
    if (auto published = *ReadPublished(*q, ""); published) {
      facts->modules_format = facts->experts_format = published->format;
      facts->dequantised_as_read = !published->format;
      facts->not_converted = std::move(published->left);
      if (!published->note.empty()) facts->training_notes.push_back(std::move(published->note));
      return;
    }
  }
  const FormatRule* const rule = NamedRule(config);
  if (rule == nullptr || rule->stored->of_experts != has_stored_experts) return;
  const StoredFormat& stored = *rule->stored;
  const ElementFormat format = FormatWith(*rule);
  if (!stored.of_experts) facts->modules_format = format;
  const bool leaves_experts = stored.leaves_experts && !QuantisationOf(config)->contains(kExpertsToo);
  facts->experts_format = leaves_experts ? ElementFormat(DType::kBF16) : format;
  facts->module_formats = *FormatsByModule(*QuantisationOf(config), "");
  if (!facts->module_formats.empty()) {
    std::map<ElementFormat, int> counts;
    for (const auto& [module, its] : facts->module_formats) ++counts[its];
    facts->modules_format = std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
                              return a.second < b.second;
                            })->first;
    facts->experts_format.reset();
  }
  for (const Json& name : LeftBy(*QuantisationOf(config))) {
    if (name.is_string()) facts->not_converted.push_back(name.get<std::string>());
  }
}

void NoteQuantisedExperts(Json* config) {
  const auto it = config->find("quantization_config");
  if (it != config->end() && it->is_object()) (*it)[kExpertsToo] = true;
}

Status CheckFormatIsRead(const Json& config, const ModelFacts& facts, const std::string& where) {
  const FormatRule* const rule = NamedRule(config);
  if (rule == nullptr || !rule->stored->of_experts || facts.experts_format == FormatWith(*rule)) return OkStatus();
  return Unsupported(fmt::format("{}: quantization_config has quant_method: {}, which is not read of {}: {}", where,
                                 rule->stored->method, facts.architecture, kRemedy));
}

std::string NameInConfig(const LinearModule& module) {
  return module.is_parameter ? module.path.substr(0, module.path.rfind('.')) : module.path;
}

bool IsLeft(const LinearModule& module, std::span<const std::string> names) {
  const std::string own = NameInConfig(module);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    if (name.starts_with("re:")) {  // as Python's re.match
      const auto pattern = Pattern::Compile("(?:" + name.substr(3) + ")(?s:.*)");
      const auto matches = pattern.ok() ? pattern->Matches(own) : Result<bool>(pattern.status());
      return matches.ok() && *matches;
    }
    return own == name || own.starts_with(name + ".") || own.ends_with(name);
  });
}

}  // namespace temper
