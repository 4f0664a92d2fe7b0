// ForeignFile: a configuration of another tool as settings, in the file's order. Two kinds of files: YAML, and a shell
// script whose command has the settings as options, or names a YAML file that has them (config/launch_line.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "config/foreign_setting.h"

namespace temper {

struct ForeignFile {
  std::vector<ForeignSetting> settings;  // a null leaves one open
  ForeignProgram program;                // no word: it is no script, or has options only
};

// `file` is its path: for messages, and to look for a file that a script names, as seen from the working folder, from
// the folder of `file` and from the folders above that.
Result<ForeignFile> ReadForeignFile(Env& env, std::string_view text, const std::string& file);

// `name` as seen from these folders; the name itself where there is none.
std::string FoundNear(Env& env, const std::string& name, const std::string& file);

}  // namespace temper
