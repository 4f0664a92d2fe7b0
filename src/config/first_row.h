// The fields of the first row of a data file, to see what its rows are before anything reads them.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "base/env.h"

namespace temper {

// `path`: a JSON or JSONL file, or a folder or pattern, whose first file counts. nullopt: there is none, or its first
// row is no object, or longer than 256 KiB.
std::optional<std::set<std::string>> FieldsOfFirstRow(Env& env, const std::string& path);

}  // namespace temper
