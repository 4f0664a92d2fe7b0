// Foreign rows: what files of several tools say of the rows of a data set in the same way: names, columns, speakers. A
// part of config/foreign_data.h.
#pragma once

#include <string>
#include <vector>

#include "config/foreign_data.h"
#include "format/json.h"
#include "objective/row_use.h"

namespace temper {

// An empty text counts as none.
std::string TextAt(const OrderedJson& object, const char* key, const std::string& fallback = "");

// Of a list of texts, or of a text with commas.
std::vector<std::string> NamesIn(const OrderedJson& value);

// Reads a field of the last file's rows from a column, or says that it cannot: `theirs` is what the tool calls it, of
// the data set `name`.
void SetColumn(const std::string& name, const std::string& theirs, std::string field, const std::string& column,
               ForeignData& data);

// Sets the columns of the last file from which conversations are read, whose list and keys the tool calls so. The
// reader of ShareGPT's turns knows all names of speakers, and both pairs of keys.
void SetTurns(const std::string& name, const std::string& list, const std::string& role, const std::string& content,
              ForeignData& data);

}  // namespace temper
