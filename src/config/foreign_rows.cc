#include "config/foreign_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "format/quoted.h"

namespace temper {

std::string TextAt(const OrderedJson& object, const char* key, const std::string& fallback) {
  if (!object.is_object()) return fallback;
  const auto it = object.find(key);
  const bool given = it != object.end() && it->is_string() && !it->get_ref<const std::string&>().empty();
  return given ? it->get<std::string>() : fallback;
}

void SetColumn(const std::string& name, const std::string& theirs, std::string field, const std::string& column,
               ForeignData& data) {
  if (AddColumn({std::move(field), column}, data.files.back().columns).ok()) return;
  data.lost.push_back(fmt::format("data set {}: its {} {}", name, theirs, Quoted(column)));
}

std::vector<std::string> NamesIn(const OrderedJson& value) {
  std::vector<std::string> names;
  if (value.is_array()) {
    for (const OrderedJson& one : value) {
      if (one.is_string()) names.push_back(one.get<std::string>());
    }
  } else if (value.is_string()) {
    const std::string text = value.get<std::string>();
    for (size_t from = 0; from <= text.size();) {
      const size_t to = std::min(text.find(',', from), text.size());
      std::string name = text.substr(from, to - from);
      name.erase(0, name.find_first_not_of(' '));
      name.erase(name.find_last_not_of(' ') + 1);
      if (!name.empty()) names.push_back(name);
      from = to + 1;
    }
  }
  return names;
}

void SetTurns(const std::string& name, const std::string& list, const std::string& role, const std::string& content,
              ForeignData& data) {
  const auto set = [&](const char* field, const std::string& column) { SetColumn(name, field, field, column, data); };
  if (list == "messages" && role == "role" && content == "content") return;
  if (list != "conversations") set("conversations", list);
  if (role != "from" && role != "role") set("conversations.from", role);
  if (content != "value" && content != "content") set("conversations.value", content);
}

}  // namespace temper
