#include "config/foreign_styles.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace temper {
namespace {

// The part of a style behind the dot, and where the fields are that it reads if their names are not ours: of texts that
// become a turn, `instruction` and `output` here.
struct StyleFields {
  std::string_view name;
  std::vector<RowColumn> of_pairs, of_ratings;
};
const std::vector<StyleFields>& Styles() {
  static const std::vector<StyleFields> kStyles = {
      {"argilla", {{"chosen", "chosen_response"}, {"rejected", "rejected_response"}}, {{"output", "completion"}}},
      {"argilla_chat", {}, {{"messages", "completion"}}},
      {"icr", {{"instruction", "input"}}, {}},
      {"intel", {}, {{"answer", "completion"}}},
      {"prompt_pairs", {{"instruction", "prompt"}}, {{"instruction", "prompt"}, {"output", "completion"}}},
      {"ultra", {}, {{"instruction", "prompt"}, {"output", "completion"}}},
  };
  return kStyles;
}

}  // namespace

ForeignStyle StyleOf(const std::string& type, RowUse rows) {
  const size_t dot = std::min(type.find('.'), type.size());
  const std::string_view family = std::string_view(type).substr(0, dot),
                         name = std::string_view(type).substr(std::min(dot + 1, type.size()));
  if (family == "passthrough" || family == "chat_template") return {.known = true};
  if (family == "bradley_terry") return {.known = true, .columns = {{"instruction", "input"}}};
  if (family != "chatml" && family != "llama3" && family != "zephyr") return {};
  ForeignStyle style{.known = true, .chat_template = std::string(family)};
  style.changed =
      fmt::format("Axolotl's {0} writes the turns of {1} by itself; here chat_template: {1} does", type, family);
  if (name.empty() || name == "default") {
    style.changed +=
        "; it reads the prompt from prompt, input, question or instruction, and answers also from chosen_response and "
        "rejected_response: columns names what is not read (temper data preview shows it)";
    return style;
  }
  const auto at = std::find_if(Styles().begin(), Styles().end(), [&](const auto& one) { return one.name == name; });
  if (at == Styles().end()) return {};
  for (const RowColumn& column : FactsOf(rows).two_answers ? at->of_pairs : at->of_ratings) {
    if (!AddColumn(column, style.columns).ok()) return {};
  }
  return style;
}

}  // namespace temper
