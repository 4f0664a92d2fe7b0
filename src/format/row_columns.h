// RowColumns: the columns of a data file from which the fields of its rows are read (data/record.h has the fields):
//   prompt=frage, completion=antwort.text, messages=chat, messages.role=from
// A dot leads into an object, or to a place in a list (answers.text.0); a column that has the dot in its own name comes
// first. A field "messages.role" is the key "role" of each message, and its column is a key of the message, too. Value
// types and pure functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace temper {

struct RowColumn {
  std::string field, column;
  bool operator==(const RowColumn&) const = default;
};
using RowColumns = std::vector<RowColumn>;  // each field at most once

// "messages" and "role" of "messages.role"; the first is empty of a row's own field.
struct FieldPlace {
  std::string_view list, name;
};
FieldPlace PlaceOfField(std::string_view field);

bool IsRowField(std::string_view field);
// Whether some format is recognised by it. Others are optional, and may be in later rows only.
bool IsNeeded(std::string_view field);
// Adds or replaces the column of a field. Errors: an unknown field, with the nearest; no column.
Status AddColumn(const RowColumn& column, RowColumns& columns);
// `of_file` goes before `of_run`.
RowColumns Combined(const RowColumns& of_run, const RowColumns& of_file);
// "prompt=frage, completion=antwort".
std::string ToString(const RowColumns& columns);
// nullptr where the field is read under its own name.
const std::string* FindColumn(const RowColumns& columns, std::string_view field);

// The name that `unknown` may have been meant to be: up to a third of its letters are wrong. Empty if there is none.
std::string NearestName(std::string_view unknown, const std::vector<std::string>& names);

}  // namespace temper
