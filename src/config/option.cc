#include "config/option.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/quantity.h"
#include "base/utf8.h"
#include "config/yaml_text.h"
#include "format/json.h"
#include "format/quoted.h"
#include "format/yaml.h"

namespace temper {
namespace {

template <class Number>
bool ParseWhole(std::string_view text, Number& out) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

// How messages show a refused value.
std::string ShownJson(const OrderedJson& value) {
  if (value.is_string()) return Quoted(value.get_ref<const std::string&>());
  if (value.is_object()) return "a mapping";
  if (value.is_array()) return "a list";
  return Quoted(DumpJson(value));
}

Status Refuse(const Option& option, const std::string& wanted, const std::string& got, const std::string& where) {
  return InvalidArgument(fmt::format("{}: {} should be {}, but is {}", where, option.name, wanted, got));
}

template <class Number>
Status StoreNumber(const Option& option, Number value, Number& target, const std::string& where) {
  if (!option.range.Contains(static_cast<double>(value))) {
    return Refuse(option, option.range.ToString(), fmt::format("{}", value), where);
  }
  target = value;
  return OkStatus();
}

const char* const kWhole = "a whole number";
const char* const kNumber = "a number";

Status StoreInteger(const Option& option, std::string_view text, int64_t& target, const std::string& where) {
  int64_t value = 0;
  if (!ParseWhole(text, value)) return Refuse(option, kWhole, Quoted(text), where);
  return StoreNumber(option, value, target, where);
}

Status StoreDouble(const Option& option, std::string_view text, double& target, const std::string& where) {
  double value = 0;
  if (!ParseWhole(text, value) || !std::isfinite(value)) return Refuse(option, kNumber, Quoted(text), where);
  return StoreNumber(option, value, target, where);
}

// "2GiB", or a number of bytes.
Status StoreBytes(const Option& option, std::string_view text, Bytes& target, const std::string& where) {
  int64_t whole = 0;
  double value = 0;
  if (ParseWhole(text, whole)) {
    value = static_cast<double>(whole);
  } else {
    const auto quantity = ParseQuantity(text, "B");
    if (!quantity.ok()) return Refuse(option, "a size, such as 2GiB", Quoted(text), where);
    value = *quantity;
  }
  constexpr double kMost = 0x1p50;  // 1 PiB: the largest arena (program/program.h)
  if (!(value >= 1 && value <= kMost)) return Refuse(option, "a size above 0 and at most 1 PiB", Quoted(text), where);
  target = Bytes{static_cast<int64_t>(value)};
  return OkStatus();
}

// Stores into an optional by `store`; resets it if the text or file says "not set".
template <class T, class Store>
Status StoreUnless(bool unset, std::optional<T>& target, const Store& store) {
  if (unset) return target.reset(), OkStatus();
  T value{};
  TEMPER_RETURN_IF_ERROR(store(value));
  target = value;
  return OkStatus();
}

// In the largest unit that gives a whole number; StoreBytes reads it back.
std::string BytesAsYaml(Bytes bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; unit + 1 < std::size(kUnits) && bytes.v % 1024 == 0; ++unit) bytes.v /= 1024;
  return fmt::format("{}{}", bytes.v, kUnits[unit]);
}

Status StoreIntegerJson(const Option& option, const OrderedJson& json, int64_t& target, const std::string& where) {
  if (json.is_string()) return StoreInteger(option, json.get_ref<const std::string&>(), target, where);
  const bool fits =
      json.is_number_integer() && !(json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX});
  if (!fits) return Refuse(option, kWhole, ShownJson(json), where);
  return StoreNumber(option, json.get<int64_t>(), target, where);
}

Status StoreNumberOrAuto(const Option& option, std::string_view text, const NumberOrAuto& target,
                         const std::string& where) {
  if (text == "auto") {
    *target.number = 1;
    *target.is_auto = true;
    return OkStatus();
  }
  int64_t number = 0;
  if (!ParseWhole(text, number)) return Refuse(option, "a whole number or auto", Quoted(text), where);
  TEMPER_RETURN_IF_ERROR(StoreNumber(option, number, *target.number, where));
  *target.is_auto = false;
  return OkStatus();
}

Status StoreDoubleJson(const Option& option, const OrderedJson& json, double& target, const std::string& where) {
  // A string, for parsers that follow YAML 1.1, where 1e-4 is one.
  if (json.is_string()) return StoreDouble(option, json.get_ref<const std::string&>(), target, where);
  if (!json.is_number() || !std::isfinite(json.get<double>())) return Refuse(option, kNumber, ShownJson(json), where);
  return StoreNumber(option, json.get<double>(), target, where);
}

Status StoreBytesJson(const Option& option, const OrderedJson& json, Bytes& target, const std::string& where) {
  if (json.is_string()) return StoreBytes(option, json.get_ref<const std::string&>(), target, where);
  int64_t value = 0;
  TEMPER_RETURN_IF_ERROR(StoreIntegerJson(option, json, value, where));
  return StoreBytes(option, fmt::format("{}", value), target, where);
}

Status StoreIntegers(const Option& option, const OrderedJson& json, IntList& target, const std::string& where) {
  IntList values;
  if (json.is_string()) {
    std::string_view text = json.get_ref<const std::string&>();
    while (!text.empty()) {
      const size_t comma = std::min(text.find(','), text.size());
      TEMPER_RETURN_IF_ERROR(StoreInteger(option, text.substr(0, comma), values.emplace_back(), where));
      text.remove_prefix(std::min(comma + 1, text.size()));
    }
  } else if (json.is_array()) {
    for (const OrderedJson& element : json) {
      TEMPER_RETURN_IF_ERROR(StoreIntegerJson(option, element, values.emplace_back(), where));
    }
  } else if (json.is_number_integer()) {
    TEMPER_RETURN_IF_ERROR(StoreIntegerJson(option, json, values.emplace_back(), where));
  } else if (!json.is_null()) {
    return Refuse(option, "a list of whole numbers, such as [3, 5]", ShownJson(json), where);
  }
  target = std::move(values);
  return OkStatus();
}

Status StoreText(const Option& option, std::string_view text, std::string& target, const std::string& where) {
  if (text.find('\0') != text.npos) return Refuse(option, "text without NUL characters", Quoted(text), where);
  // The text is written into the saved configuration.
  if (!utf8::IsValid(text)) return Refuse(option, "UTF-8 text", "bytes that are not; rename the file", where);
  target = std::string(text);
  return OkStatus();
}

// A plain dotted name, or several with commas between: a list. Anything else is a regular expression (or a keyword).
bool IsPlainName(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
}

TextOrList ListOrPattern(std::string_view text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) { return IsPlainName(c) || c == ','; });
  if (!plain) return std::string(text);
  std::vector<std::string> names;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) names.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return names;
}

Status StoreList(const Option& option, const OrderedJson& json, TextOrList& target, const std::string& where) {
  if (json.is_null()) {
    target = std::vector<std::string>();
    return OkStatus();
  }
  if (json.is_string()) {
    std::string text;
    TEMPER_RETURN_IF_ERROR(StoreText(option, json.get_ref<const std::string&>(), text, where));
    target = ListOrPattern(text);
    return OkStatus();
  }
  if (!json.is_array()) return Refuse(option, "a list of names or a regular expression", ShownJson(json), where);
  std::vector<std::string> names;
  for (const OrderedJson& element : json) {
    if (!element.is_string())
      return Refuse(option, "a list of names", "a list with " + ShownJson(element) + " in it", where);
    TEMPER_RETURN_IF_ERROR(StoreText(option, element.get_ref<const std::string&>(), names.emplace_back(), where));
  }
  target = std::move(names);
  return OkStatus();
}

template <class Number>
Status StorePatterns(const Option& option, const OrderedJson& json, std::vector<std::pair<std::string, Number>>& target,
                     const std::string& where) {
  std::vector<std::pair<std::string, Number>> patterns;
  if (!json.is_null() && !json.is_object()) {
    return Refuse(option, "a mapping from module names to numbers, such as {q_proj: 8}", ShownJson(json), where);
  }
  for (auto it = json.begin(); it != json.end(); ++it) {
    std::string name;
    Number value{};
    TEMPER_RETURN_IF_ERROR(StoreText(option, it.key(), name, where));
    if constexpr (std::is_same_v<Number, int64_t>) {
      TEMPER_RETURN_IF_ERROR(StoreIntegerJson(option, it.value(), value, where));
    } else {
      TEMPER_RETURN_IF_ERROR(StoreDoubleJson(option, it.value(), value, where));
    }
    patterns.emplace_back(std::move(name), value);
  }
  target = std::move(patterns);
  return OkStatus();
}

Status StorePairs(const Option& option, const OrderedJson& json, TextPairs& target, const std::string& where) {
  TextPairs pairs;
  const auto refuse = [&](const std::string& got) {
    return Refuse(option, "a list of pairs, such as [[lm_head, \"fsdp,tp\"]]", got, where);
  };
  if (!json.is_null() && !json.is_array()) return refuse(ShownJson(json));
  for (const OrderedJson& pair : json) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
      return refuse("a list with " + (pair.is_array() ? "another list" : ShownJson(pair)) + " in it");
    }
    auto& [first, second] = pairs.emplace_back();
    TEMPER_RETURN_IF_ERROR(StoreText(option, pair[0].get_ref<const std::string&>(), first, where));
    TEMPER_RETURN_IF_ERROR(StoreText(option, pair[1].get_ref<const std::string&>(), second, where));
  }
  target = std::move(pairs);
  return OkStatus();
}

Status StoreObject(const Option& option, const OrderedJson& json, JsonObject& target, const std::string& where) {
  if (json.is_null()) return target.text.clear(), OkStatus();
  if (!json.is_object()) return Refuse(option, "a JSON object, such as {\"a\": true}", ShownJson(json), where);
  target.text = json.empty() ? "" : DumpJson(json);
  return OkStatus();
}

// A structured value as a file would have it, or the text itself.
Result<OrderedJson> JsonOfText(const Option& option, std::string_view text, const std::string& where) {
  if (text.starts_with('{') || text.starts_with('[')) return ParseYamlValue(text, where + ", " + option.name);
  return OrderedJson(std::string(text));
}

Status StoreBool(const Option& option, std::string_view text, bool& target, const std::string& where) {
  if (!EqualIgnoringCase(text, "true") && !EqualIgnoringCase(text, "false")) {
    return Refuse(option, "true or false", Quoted(text), where);
  }
  target = EqualIgnoringCase(text, "true");
  return OkStatus();
}

// What torch, transformers and their users call some choices.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {{"bfloat16", "bf16"},
                                                                         {"float32", "f32"},
                                                                         {"fp32", "f32"},
                                                                         {"float16", "f16"},
                                                                         {"fp16", "f16"},
                                                                         {"cuda", "gpu"},
                                                                         {"hip", "gpu"},
                                                                         {"rocm", "gpu"},
                                                                         {"adamw_torch", "adamw"},
                                                                         {"adamw_torch_fused", "adamw"},
                                                                         {"adamw_bnb_8bit", "adamw_8bit"},
                                                                         {"lion_32bit", "lion"},
                                                                         {"rm", "reward"},
                                                                         {"4bit", "nf4"},
                                                                         {"8bit", "int8"}};

// Values of other tools that are no choice here, and what to write instead.
struct Instead {
  std::string_view option, value, advice;
};
constexpr Instead kInstead[] = {
    {"method", "qlora", "QLoRA is method lora with base_dtype nf4"},
    {"method", "dora", "DoRA is method lora with lora.use_dora true"},
    {"method", "freeze", "chosen modules are trained by train_modules, beside adapters on the others"},
    {"dtype", "f16", "half floats are not computed with: models in them are trained in bf16 or f32"},
};

Status StoreChoice(const Option& option, std::string_view text, const Choice& choice, const std::string& where) {
  const auto* const other = std::find_if(std::begin(kOtherNames), std::end(kOtherNames),
                                         [&](const auto& pair) { return EqualIgnoringCase(text, pair.first); });
  for (const std::string_view name : {text, other == std::end(kOtherNames) ? text : other->second}) {
    for (size_t i = 0; i < choice.names.size(); ++i) {
      if (!EqualIgnoringCase(name, choice.names[i])) continue;
      choice.set(static_cast<int>(i));
      return OkStatus();
    }
  }
  const Status refused = Refuse(option, fmt::format("one of {}", fmt::join(choice.names, ", ")), Quoted(text), where);
  for (const Instead& instead : kInstead) {
    const std::string_view value = other == std::end(kOtherNames) ? text : other->second;
    if (option.name != instead.option || !EqualIgnoringCase(value, instead.value)) continue;
    return InvalidArgument(fmt::format("{}; {}", refused.message(), instead.advice));
  }
  return refused;
}

template <class Number>
std::string PatternsAsYaml(const std::vector<std::pair<std::string, Number>>& patterns) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : patterns) {
    if constexpr (std::is_same_v<Number, double>) {
      parts.push_back(TextAsYaml(name) + ": " + NumberAsYaml(value));
    } else {
      parts.push_back(fmt::format("{}: {}", TextAsYaml(name), value));
    }
  }
  return fmt::format("{{{}}}", fmt::join(parts, ", "));
}

}  // namespace

std::string Range::ToString() const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<std::string> parts;
  if (at_least > -kInfinity) parts.push_back(fmt::format("at least {}", at_least));
  if (above > -kInfinity) parts.push_back(fmt::format("above {}", above));
  if (at_most < kInfinity) parts.push_back(fmt::format("at most {}", at_most));
  if (below < kInfinity) parts.push_back(fmt::format("below {}", below));
  return fmt::format("{}", fmt::join(parts, " and "));
}

Status SetFromText(const Option& option, std::string_view text, const std::string& where) {
  return std::visit(
      Overloaded{[&](bool* v) { return StoreBool(option, text, *v, where); },
                 [&](int64_t* v) { return StoreInteger(option, text, *v, where); },
                 [&](const NumberOrAuto& v) { return StoreNumberOrAuto(option, text, v, where); },
                 [&](double* v) { return StoreDouble(option, text, *v, where); },
                 [&](std::string* v) { return StoreText(option, text, *v, where); },
                 [&](std::optional<int64_t>* v) {
                   return StoreUnless(MeansUnset(text), *v,
                                      [&](int64_t& value) { return StoreInteger(option, text, value, where); });
                 },
                 [&](std::optional<double>* v) {
                   return StoreUnless(MeansUnset(text), *v,
                                      [&](double& value) { return StoreDouble(option, text, value, where); });
                 },
                 [&](std::optional<Bytes>* v) {
                   return StoreUnless(MeansUnset(text), *v,
                                      [&](Bytes& value) { return StoreBytes(option, text, value, where); });
                 },
                 [&](const OptionalText& v) {
                   std::string value;
                   TEMPER_RETURN_IF_ERROR(StoreText(option, text, value, where));
                   *v.value = std::move(value);
                   return OkStatus();
                 },
                 [&](const Choice& v) { return StoreChoice(option, text, v, where); },
                 [&](const Repeatable& v) -> Status {
                   TEMPER_ASSIGN_OR_RETURN(const OrderedJson json, JsonOfText(option, text, where));
                   return v.set(json, where, /*more=*/false);
                 },
                 [&](auto* v) {  // TextOrList, pairs, patterns and objects: as in a file
                   TEMPER_ASSIGN_OR_RETURN(OrderedJson json, JsonOfText(option, text, where));
                   if (MeansUnset(text)) json = nullptr;
                   if constexpr (std::is_same_v<decltype(v), TextOrList*>) {
                     return StoreList(option, json, *v, where);
                   } else if constexpr (std::is_same_v<decltype(v), IntList*>) {
                     return StoreIntegers(option, json, *v, where);
                   } else if constexpr (std::is_same_v<decltype(v), JsonObject*>) {
                     return StoreObject(option, json, *v, where);
                   } else if constexpr (std::is_same_v<decltype(v), TextPairs*>) {
                     return StorePairs(option, json, *v, where);
                   } else {
                     return StorePatterns(option, json, *v, where);
                   }
                 }},
      option.target);
}

Status SetFromJson(const Option& option, const OrderedJson& json, const std::string& where) {
  const auto no_value = [&] {
    return InvalidArgument(fmt::format("{}: {} has no value; give it one, or remove the line", where, option.name));
  };
  const bool unset = json.is_null() || (json.is_string() && MeansUnset(json.get_ref<const std::string&>()));
  const auto text_or = [&](const char* wanted, auto&& store) -> Status {
    if (json.is_string()) return store(json.get_ref<const std::string&>());
    if (json.is_null()) return no_value();
    return Refuse(option, wanted, ShownJson(json), where);
  };
  return std::visit(
      Overloaded{
          [&](bool* v) {
            if (json.is_boolean()) return *v = json.get<bool>(), OkStatus();
            return text_or("true or false", [&](std::string_view t) { return StoreBool(option, t, *v, where); });
          },
          [&](int64_t* v) { return json.is_null() ? no_value() : StoreIntegerJson(option, json, *v, where); },
          [&](const NumberOrAuto& v) {
            if (json.is_null()) return no_value();
            if (json.is_string()) return StoreNumberOrAuto(option, json.get_ref<const std::string&>(), v, where);
            TEMPER_RETURN_IF_ERROR(StoreIntegerJson(option, json, *v.number, where));
            *v.is_auto = false;
            return OkStatus();
          },
          [&](double* v) { return json.is_null() ? no_value() : StoreDoubleJson(option, json, *v, where); },
          [&](std::string* v) {
            if (json.is_null()) return v->clear(), OkStatus();
            return text_or(json.is_structured() ? "one text" : "text (put it in quotes)",
                           [&](std::string_view t) { return StoreText(option, t, *v, where); });
          },
          [&](std::optional<int64_t>* v) {
            return StoreUnless(unset, *v, [&](int64_t& value) { return StoreIntegerJson(option, json, value, where); });
          },
          [&](std::optional<double>* v) {
            return StoreUnless(unset, *v, [&](double& value) { return StoreDoubleJson(option, json, value, where); });
          },
          [&](std::optional<Bytes>* v) {
            return StoreUnless(unset, *v, [&](Bytes& value) { return StoreBytesJson(option, json, value, where); });
          },
          [&](const OptionalText& v) {
            if (json.is_null() || json == false) return v.value->reset(), OkStatus();
            if (json == true) return *v.value = std::string(), OkStatus();
            return text_or("true, false or a path", [&](std::string_view t) {
              std::string value;
              TEMPER_RETURN_IF_ERROR(StoreText(option, t, value, where));
              *v.value = std::move(value);
              return OkStatus();
            });
          },
          [&](TextOrList* v) { return StoreList(option, json, *v, where); },
          [&](TextPairs* v) { return StorePairs(option, json, *v, where); },
          [&](const Choice& v) {
            // YAML reads the choice `none` as text, but `null` as nothing.
            if (json.is_null() && std::count(v.names.begin(), v.names.end(), "none")) {
              return StoreChoice(option, "none", v, where);
            }
            if (json.is_boolean()) return StoreChoice(option, json == true ? "true" : "false", v, where);
            return text_or(fmt::format("one of {}", fmt::join(v.names, ", ")).c_str(),
                           [&](std::string_view t) { return StoreChoice(option, t, v, where); });
          },
          [&](const Repeatable& v) { return v.set(json, where, /*more=*/false); },
          [&](IntList* v) { return StoreIntegers(option, json, *v, where); },
          [&](JsonObject* v) {
            const bool quoted = json.is_string() && json.get_ref<const std::string&>().starts_with('{');
            if (quoted) return SetFromText(option, json.get_ref<const std::string&>(), where);
            return StoreObject(option, unset ? OrderedJson() : json, *v, where);
          },
          [&](auto* v) { return StorePatterns(option, json, *v, where); }},
      option.target);
}

Status AddFromText(const Option& option, std::string_view text, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(const OrderedJson json, JsonOfText(option, text, where));
  return std::get<Repeatable>(option.target).set(json, where, /*more=*/true);
}

std::string ValueAsYaml(const Option& option) {
  const auto list = [](const std::vector<std::string>& names) {
    std::vector<std::string> parts;
    for (const std::string& name : names) parts.push_back(TextAsYaml(name));
    return fmt::format("[{}]", fmt::join(parts, ", "));
  };
  return std::visit(
      Overloaded{[](const bool* v) { return std::string(*v ? "true" : "false"); },
                 [](const int64_t* v) { return fmt::format("{}", *v); },
                 [](const NumberOrAuto& v) { return *v.is_auto ? std::string("auto") : fmt::format("{}", *v.number); },
                 [](const double* v) { return NumberAsYaml(*v); },
                 [](const std::string* v) { return v->empty() ? "null" : TextAsYaml(*v); },
                 [](const std::optional<int64_t>* v) { return *v ? fmt::format("{}", **v) : "null"; },
                 [](const std::optional<double>* v) { return *v ? NumberAsYaml(**v) : "null"; },
                 [](const std::optional<Bytes>* v) { return *v ? BytesAsYaml(**v) : "null"; },
                 [](const OptionalText& v) {
                   if (!v.value->has_value()) return std::string("null");
                   return (*v.value)->empty() ? "true" : TextAsYaml(**v.value);
                 },
                 [&](const TextOrList* v) {
                   if (const auto* names = std::get_if<std::vector<std::string>>(v)) return list(*names);
                   return TextAsYaml(std::get<std::string>(*v));
                 },
                 [](const TextPairs* v) {
                   std::vector<std::string> pairs;
                   for (const auto& [first, second] : *v) {
                     pairs.push_back(fmt::format("[{}, {}]", TextAsYaml(first), TextAsYaml(second)));
                   }
                   return fmt::format("[{}]", fmt::join(pairs, ", "));
                 },
                 [](const Choice& v) { return std::string(v.names[static_cast<size_t>(v.get())]); },
                 [](const Repeatable& v) { return v.as_yaml(); },
                 [](const IntList* v) { return fmt::format("[{}]", fmt::join(*v, ", ")); },
                 [](const JsonObject* v) { return v->text.empty() ? "null" : v->text; },
                 [](const auto* v) { return PatternsAsYaml(*v); }},
      option.target);
}

std::string ValueHint(const Option& option) {
  if (!option.value_hint.empty()) return option.value_hint;
  return std::visit(
      Overloaded{[](const bool*) { return std::string(); }, [](const int64_t*) { return std::string("N"); },
                 [](const NumberOrAuto&) { return std::string("N|auto"); },
                 [](const double*) { return std::string("X"); }, [](const std::string*) { return std::string("PATH"); },
                 [](const std::optional<int64_t>*) { return std::string("N"); },
                 [](const std::optional<double>*) { return std::string("X"); },
                 [](const std::optional<Bytes>*) { return std::string("SIZE"); },
                 [](const OptionalText&) { return std::string("[=PATH]"); },
                 [](const TextOrList*) { return std::string("NAMES"); },
                 [](const TextPairs*) { return std::string("[[TEXT, TEXT]]"); },
                 [](const Choice& v) { return fmt::format("{}", fmt::join(v.names, "|")); },
                 [](const Repeatable&) { return std::string("VALUE"); },
                 [](const IntList*) { return std::string("[N, ...]"); },
                 [](const JsonObject*) { return std::string("JSON"); },
                 [](const auto*) { return std::string("{NAME: N}"); }},
      option.target);
}

Result<OrderedJson> ParseYamlValue(std::string_view text, const std::string& where) {
  auto document = ParseYaml(text, where);
  if (!document.ok()) return InvalidArgument(document.status().message());  // a mistake of the command line
  return std::move(document->value);
}

}  // namespace temper
