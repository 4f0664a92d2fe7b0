#include "format/python_json.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "format/json.h"

namespace temper {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"-Infinity", "Infinity", "NaN"};
constexpr char kFloat[] = "__float__";

std::string AsObject(std::string_view name) {
  return fmt::format(R"({{"{}": "{}"}})", kFloat, name);
}

// Before the name of a number, in a string; no text of a file has this one.
constexpr std::string_view kMark = "temper-bare-number:";

void MarkNonFinite(OrderedJson* json) {
  if (!json->is_structured()) return;
  if (json->is_object() && json->size() == 1 && json->contains(kFloat)) {
    const OrderedJson& name = json->front();
    if (name.is_string() && std::count(kNames.begin(), kNames.end(), name.get_ref<const std::string&>()) > 0) {
      *json = OrderedJson(std::string(kMark) + name.get<std::string>());
      return;
    }
  }
  for (OrderedJson& item : *json) MarkNonFinite(&item);
}

template <class J, class Parse>
Result<J> ParseWith(const Parse& parse, std::string_view text, const std::string& where) {
  Result<J> json = parse(text, where);
  if (json.ok()) return json;
  const auto finite = ReplaceNonFinite(text, AsObject);
  return finite ? parse(*finite, where) : std::move(json);
}

}  // namespace

std::optional<std::string> ReplaceNonFinite(std::string_view text,
                                            const std::function<std::string(std::string_view name)>& as) {
  if (text.find("NaN") == text.npos && text.find("Infinity") == text.npos) return std::nullopt;
  std::string out;
  bool in_string = false, changed = false;
  for (size_t i = 0; i < text.size();) {
    if (in_string && text[i] == '\\') {
      out += text.substr(i, 2);
      i += 2;
      continue;
    }
    in_string ^= text[i] == '"';
    const auto name = std::find_if(kNames.begin(), kNames.end(),
                                   [&](std::string_view n) { return !in_string && text.substr(i).starts_with(n); });
    if (name == kNames.end()) {
      out += text[i++];
      continue;
    }
    out += as(*name);
    i += name->size();
    changed = true;
  }
  return changed ? std::optional(std::move(out)) : std::nullopt;
}

Result<Json> ParsePythonJson(std::string_view text, const std::string& where) {
  return ParseWith<Json>(ParseJson, text, where);
}
Result<OrderedJson> ParseOrderedPythonJson(std::string_view text, const std::string& where) {
  return ParseWith<OrderedJson>(ParseOrderedJson, text, where);
}

Result<Json> ReadPythonJsonFile(Env& env, const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env, path));
  return ParsePythonJson(text, path);
}

std::string PrintPythonJson(OrderedJson json, std::string_view source) {
  const bool bare = ReplaceNonFinite(source, AsObject).has_value();
  if (bare) MarkNonFinite(&json);
  std::string out = DumpJson(json, 2) + "\n";
  if (!bare) return out;
  for (const std::string_view name : kNames) {
    const std::string marked = fmt::format("\"{}{}\"", kMark, name);
    for (size_t at = 0; (at = out.find(marked, at)) != out.npos; at += name.size()) {
      out.replace(at, marked.size(), name);
    }
  }
  return out;
}

}  // namespace temper
