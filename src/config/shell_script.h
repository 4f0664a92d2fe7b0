// ShellScript: the commands of a shell script, as far as scripts that start a training have them: words with quotes and
// backslashes as in a shell, comments left out. Variables and lists that the script itself sets to plain text are put
// in their place, and so are defaults (${NAME:-text}); nothing is run, no file name is completed, and no branch is
// taken.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace temper {

struct ScriptWord {
  std::string text;
  int line = 0;          // from 1
  bool is_open = false;  // it has a variable that the script does not set, or the output of a command, as it is written
};

struct ScriptCommand {
  std::vector<ScriptWord> assignments;  // in front of the command, for it alone: NAME=VALUE
  std::vector<ScriptWord> words;        // at least one
};

// `file` is its path, for messages. Error: a quote is not closed.
Result<std::vector<ScriptCommand>> ReadShellScript(std::string_view text, const std::string& file);

}  // namespace temper
