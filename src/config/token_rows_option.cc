#include "config/token_rows_option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/option_set.h"
#include "config/yaml_text.h"
#include "graph/row_list.h"

namespace temper {
namespace {

constexpr char kTokenRows[] = "lora.trainable_token_indices";

Result<std::vector<int64_t>> TokenRowsOf(const OrderedJson& value, const std::string& where) {
  const auto bad = [&] {
    return InvalidArgument(fmt::format(
        "{}: {} should be a list of rows, such as [5, 7], or map tables to such lists, as {{embed_tokens: [5, 7]}}",
        where, kTokenRows));
  };
  if (value.is_string()) {
    auto rows = ParseRowList(value.get_ref<const std::string&>());
    if (!rows.ok()) return InvalidArgument(fmt::format("{}: {}: {}", where, kTokenRows, rows.status().message()));
    return rows;
  }
  std::vector<int64_t> rows;
  for (const OrderedJson& row : value.is_array() ? value : OrderedJson::array({value})) {
    if (!row.is_number_integer() || row < 0 || row > INT32_MAX) return bad();
    rows.push_back(row.get<int64_t>());
  }
  return rows;
}

}  // namespace

Option TokenRowsOption(LoraConfig::TokenIndices& indices) {
  const auto set = [&indices](const OrderedJson& given, const std::string& where, bool more) -> Status {
    OrderedJson value = given;
    if (const auto* text = value.get_ptr<const std::string*>(); text != nullptr && text->find_first_of("[{") == 0) {
      TEMPER_ASSIGN_OR_RETURN(value, ParseYamlValue(std::string(*text), where));
    }
    LoraConfig::TokenIndices changed = more ? indices : LoraConfig::TokenIndices();
    const auto add = [&](const std::string& module, const std::vector<int64_t>& rows) {
      for (auto& [name, of_module] : changed) {
        if (name != module) continue;
        of_module.insert(of_module.end(), rows.begin(), rows.end());
        return;
      }
      if (!rows.empty()) changed.emplace_back(module, rows);
    };
    const bool none = value.is_null() || (value.is_string() && MeansUnset(value.get_ref<const std::string&>()));
    if (value.is_object()) {
      for (const auto& [module, list] : value.items()) {
        TEMPER_ASSIGN_OR_RETURN(const std::vector<int64_t> rows, TokenRowsOf(list, where));
        add(module, rows);
      }
    } else if (!none) {
      TEMPER_ASSIGN_OR_RETURN(const std::vector<int64_t> rows, TokenRowsOf(value, where));
      add("", rows);
    }
    const auto names_none = [](const auto& of_module) { return of_module.first.empty(); };
    if (changed.size() > 1 && std::any_of(changed.begin(), changed.end(), names_none)) {
      return InvalidArgument(
          fmt::format("{}: {}: a list of rows stands beside a map: give all in one map of tables", where, kTokenRows));
    }
    indices = std::move(changed);
    return OkStatus();
  };
  const auto as_yaml = [&indices] {
    std::vector<std::string> texts;
    for (const auto& [module, rows] : indices) {
      const std::string list = fmt::format("[{}]", fmt::join(rows, ", "));
      if (module.empty()) return list;
      texts.push_back(fmt::format("{}: {}", TextAsYaml(module), list));
    }
    return texts.empty() ? std::string("[]") : fmt::format("{{{}}}", fmt::join(texts, ", "));
  };
  return {.name = kTokenRows,
          .target = Repeatable{.set = set, .as_yaml = as_yaml},
          .help = "rows of the embeddings to train beside the adapter, such as 5,7-9; a tied head follows",
          .value_hint = "ROWS",
          .unsaid = "[]"};
}

}  // namespace temper
