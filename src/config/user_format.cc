#include "config/user_format.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

namespace temper {
namespace {

// The keys of such a mapping, with Axolotl's defaults.
std::map<std::string, std::string> Defaults() {
  return {{"system_prompt", ""},
          {"field_system", "system"},
          {"field_instruction", "instruction"},
          {"field_input", "input"},
          {"field_output", "output"},
          {"format", "{instruction} {input} "},
          {"no_input_format", "{instruction} "},
          {"system_format", "{system}"}};
}

bool IsVariable(const std::string& name) {
  static const char* const kWords[] = {"and", "or",   "not",  "in",   "is",   "if",    "else", "true",
                                       "for", "True", "None", "none", "loop", "False", "false"};
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto inside = [&](char c) { return letter(c) || (c >= '0' && c <= '9'); };
  return !name.empty() && letter(name[0]) && std::all_of(name.begin(), name.end(), inside) &&
         std::find(std::begin(kWords), std::end(kWords), name) == std::end(kWords);
}

// `text` as an expression: a template would drop a line end behind a block.
std::string Printed(const std::string& text) {
  return text.empty() ? "" : fmt::format("{{{{ {} }}}}", DumpJson(OrderedJson(text)));
}

// A format of Python's with these fields: {name} becomes what the map has for it, {{ and }} are braces.
std::optional<std::string> Converted(std::string_view format, const std::map<std::string, std::string>& fields) {
  std::string out, text;
  while (!format.empty()) {
    const char c = format[0];
    const bool twice = format.size() > 1 && format[1] == c;
    if (c != '{' && c != '}') {
      text += c;
      format.remove_prefix(1);
    } else if (twice) {
      text += c;
      format.remove_prefix(2);
    } else {
      const size_t end = format.find('}');
      if (c == '}' || end == format.npos) return std::nullopt;
      const auto field = fields.find(std::string(format.substr(1, end - 1)));
      if (field == fields.end()) return std::nullopt;
      out += Printed(text) + fmt::format("{{{{ {} }}}}", field->second);
      text.clear();
      format.remove_prefix(end + 1);
    }
  }
  return out + Printed(text);
}

}  // namespace

std::optional<std::string> RowTemplateOf(const OrderedJson& type) {
  if (!type.is_object()) return std::nullopt;
  std::map<std::string, std::string> given = Defaults();
  for (const auto& [key, value] : type.items()) {
    const auto known = given.find(key);
    if (known == given.end() || !(value.is_string() || value.is_null())) return std::nullopt;
    if (value.is_string()) known->second = value.get<std::string>();
  }
  const std::string instruction = given["field_instruction"], input = given["field_input"],
                    output = given["field_output"], system = given["field_system"];
  for (const std::string& column : {instruction, input, output, system}) {
    if (!IsVariable(column)) return std::nullopt;
  }
  const auto with_input = Converted(given["format"], {{"instruction", instruction}, {"input", input}});
  const auto without = Converted(given["no_input_format"], {{"instruction", instruction}});
  const auto of_row = Converted(given["system_format"], {{"system", system}});
  const auto of_type = Converted(given["system_format"], {{"system", DumpJson(OrderedJson(given["system_prompt"]))}});
  if (!with_input || !without || !of_row || !of_type) return std::nullopt;
  std::string text = fmt::format("{{% if {} %}}{}", system, *of_row);
  if (!given["system_prompt"].empty()) text += fmt::format("{{% elif {} is undefined %}}{}", system, *of_type);
  text += "{% endif %}";
  if (*with_input == *without) {
    text += *without;
  } else {
    text += fmt::format("{{% if {} %}}{}{{% else %}}{}{{% endif %}}", input, *with_input, *without);
  }
  return text + fmt::format("{{% generation %}}{{{{ {} }}}}{{% endgeneration %}}", output);
}

}  // namespace temper
