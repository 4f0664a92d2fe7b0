#include "format/row_columns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/edit_distance.h"
#include "format/quoted.h"

namespace temper {
namespace {

struct RowField {
  const char* name;
  bool needed = false;
};
constexpr RowField kFields[] = {{"prompt", true},
                                {"completion", true},
                                {"system"},
                                {"messages", true},
                                {"conversations", true},
                                {"tools"},
                                {"question", true},
                                {"answer", true},
                                {"context"},
                                {"instruction", true},
                                {"input"},
                                {"output", true},
                                {"response", true},
                                {"history"},
                                {"text", true},
                                {"input_ids", true},
                                {"labels"},
                                {"label"},
                                {"chosen", true},
                                {"rejected", true},
                                {"margin"},
                                {"attention_mask"},
                                {"weight"},
                                {"chat_template_kwargs"}};

std::vector<std::string> FieldNames() {
  std::vector<std::string> names;
  for (const RowField& field : kFields) names.emplace_back(field.name);
  return names;
}

const RowField* FindField(std::string_view name) {
  const auto found =
      std::find_if(std::begin(kFields), std::end(kFields), [&](const RowField& f) { return f.name == name; });
  return found == std::end(kFields) ? nullptr : found;
}

void Put(const RowColumn& column, RowColumns& columns) {
  const auto known =
      std::find_if(columns.begin(), columns.end(), [&](const RowColumn& c) { return c.field == column.field; });
  if (known == columns.end()) {
    columns.push_back(column);
  } else {
    known->column = column.column;
  }
}

constexpr std::string_view kLists[] = {"messages", "conversations"};

}  // namespace

FieldPlace PlaceOfField(std::string_view field) {
  for (const std::string_view list : kLists) {
    if (field.size() > list.size() + 1 && field.starts_with(list) && field[list.size()] == '.') {
      return {.list = list, .name = field.substr(list.size() + 1)};
    }
  }
  return {.list = "", .name = field};
}

bool IsRowField(std::string_view field) {
  return !PlaceOfField(field).list.empty() || FindField(field) != nullptr;
}

bool IsNeeded(std::string_view field) {
  const RowField* const found = FindField(field);
  return found != nullptr && found->needed;
}

Status AddColumn(const RowColumn& column, RowColumns& columns) {
  if (!IsRowField(column.field)) {
    const std::vector<std::string> fields = FieldNames();
    const std::string nearest = NearestName(column.field, fields);
    return InvalidArgument(fmt::format(
        "{} is no field of rows; {}, and messages.role, messages.content and other keys of messages (FIELD=COLUMN)",
        Quoted(column.field),
        nearest.empty() ? fmt::format("fields are {}", fmt::join(fields, ", "))
                        : fmt::format("did you mean '{}'? Fields are {}", nearest, fmt::join(fields, ", "))));
  }
  if (column.column.empty()) {
    return InvalidArgument(fmt::format("{} has no column: write {}=COLUMN", column.field, column.field));
  }
  Put(column, columns);
  return OkStatus();
}

RowColumns Combined(const RowColumns& of_run, const RowColumns& of_file) {
  RowColumns out = of_run;
  for (const RowColumn& column : of_file) Put(column, out);
  return out;
}

std::string ToString(const RowColumns& columns) {
  std::vector<std::string> parts;
  for (const RowColumn& c : columns) parts.push_back(c.field + "=" + c.column);
  return fmt::format("{}", fmt::join(parts, ", "));
}

const std::string* FindColumn(const RowColumns& columns, std::string_view field) {
  const auto found = std::find_if(columns.begin(), columns.end(), [&](const RowColumn& c) { return c.field == field; });
  return found == columns.end() ? nullptr : &found->column;
}

std::string NearestName(std::string_view unknown, const std::vector<std::string>& names) {
  constexpr size_t kLongest = 64;  // EditDistance's
  if (unknown.size() > kLongest) return "";
  const EditDistanceTo distance(unknown);
  size_t least = std::max<size_t>(1, unknown.size() / 3) + 1;
  std::string nearest;
  for (const std::string& name : names) {
    if (const size_t d = distance.From(name); d < least) {
      least = d;
      nearest = name;
    }
  }
  return nearest;
}

}  // namespace temper
