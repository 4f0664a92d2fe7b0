#include "format/row_columns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/edit_distance.h"
#include "format/quoted.h"

namespace temper {
namespace {

const std::vector<std::string>& RowFields() {
  static const std::vector<std::string> kFields = {
      "prompt",    "completion", "system",         "messages", "conversations",
      "tools",     "question",   "answer",         "context",  "instruction",
      "input",     "output",     "response",       "history",  "text",
      "input_ids", "labels",     "attention_mask", "weight",   "chat_template_kwargs"};
  return kFields;
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
  const auto& fields = RowFields();
  return !PlaceOfField(field).list.empty() || std::find(fields.begin(), fields.end(), field) != fields.end();
}

Status AddColumn(RowColumn column, RowColumns& columns) {
  if (!IsRowField(column.field)) {
    const std::string nearest = NearestName(column.field, RowFields());
    return InvalidArgument(fmt::format(
        "{} is no field of rows; {}, and messages.role, messages.content and other keys of messages (FIELD=COLUMN)",
        Quoted(column.field),
        nearest.empty() ? fmt::format("fields are {}", fmt::join(RowFields(), ", "))
                        : fmt::format("did you mean '{}'? Fields are {}", nearest, fmt::join(RowFields(), ", "))));
  }
  if (column.column.empty()) {
    return InvalidArgument(fmt::format("{} has no column: write {}=COLUMN", column.field, column.field));
  }
  const auto known =
      std::find_if(columns.begin(), columns.end(), [&](const RowColumn& c) { return c.field == column.field; });
  if (known == columns.end()) {
    columns.push_back(std::move(column));
  } else {
    known->column = std::move(column.column);
  }
  return OkStatus();
}

RowColumns Combined(const RowColumns& of_run, const RowColumns& of_file) {
  RowColumns out = of_run;
  for (const RowColumn& column : of_file) {
    const auto known =
        std::find_if(out.begin(), out.end(), [&](const RowColumn& c) { return c.field == column.field; });
    if (known == out.end()) {
      out.push_back(column);
    } else {
      known->column = column.column;
    }
  }
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
