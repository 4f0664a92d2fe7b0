// LaunchLine: the command of a script that starts a training, as launchers and tools have it: which program it starts,
// the file with settings that it names, and its options.
//   accelerate launch --num_processes 4 trl/scripts/dpo.py --learning_rate 1e-6
//   FORCE_TORCHRUN=1 llamafactory-cli train recipe.yaml learning_rate=1e-5
//   python -m axolotl.cli.train recipe.yml --learning-rate 1e-4
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "config/foreign_setting.h"
#include "config/shell_script.h"

namespace temper {

struct LaunchLine {
  ForeignProgram program;                // no text: only options were found
  ForeignWord recipe;                    // the file with settings that it names; no text: none
  std::vector<ForeignSetting> settings;  // those of the launcher, too
};

// Of the script's command that starts a training, or else has options. `file`: its path, for messages. Errors: two
// trainings; a value that the script does not know (a variable that it does not set).
Result<LaunchLine> FindLaunchLine(std::string_view script, const std::string& file);

// The words of a program's file name, in lower case: "recipes/run_dpo.py" has run, dpo and py.
std::vector<std::string> NameWords(std::string_view program);

}  // namespace temper
