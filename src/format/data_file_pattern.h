// DataFilesOf: the data files that a path stands for: itself, all of a folder, or those whose names match a pattern.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"

namespace temper {

// Whether `path` has *, ? or [ and so may be a pattern.
bool IsPattern(std::string_view path);

// `given`: what the user gave as `option`.
// - A folder stands for the files in it, not for those in its folders, unless it has dataset_dict.json.
// - In a pattern, which no file has as its name, *, ? and [a-z] match within a name of a file or a folder, as in a
//   shell: no leading dot.
// Both take files with the ending of a data file (format/data_file_name.h), without those that describe data sets
// (README, LICENSE, dataset_info.json, state.json), in the order of their names. Error: there is none; it says what was
// looked for.
// - Any other path stands for itself, whether it exists or not.
Result<std::vector<std::string>> DataFilesOf(Env& env, const std::string& given, const char* option);

}  // namespace temper
