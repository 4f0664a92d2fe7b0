// The commands of temper, one file each. A command gets the arguments after its name, prints results to stdout and
// everything else to stderr, and returns the process's exit code.
//
// Exit codes: 0 done; 1 an error, described on stderr; 2 an error of the command line or the configuration; 3 a run
// diverged and was to stop then; 69 another process uses the output folder, and the same command may work later; 75
// stopped by SIGTERM, SIGHUP or SIGUSR1 and 130 by SIGINT, in both cases after saving a checkpoint to resume from, if a
// step has completed.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "config/option_set.h"

namespace temper {

using Arguments = std::vector<std::string>;

inline constexpr int kExitDiverged = 3;
inline constexpr int kExitInUse = 69;          // EX_UNAVAILABLE of sysexits.h
inline constexpr int kExitStoppedByTerm = 75;  // EX_TEMPFAIL of sysexits.h: run the same command again
inline constexpr int kExitStoppedByInt = 130;  // 128 + SIGINT

// What a command's first word is, where it takes one without dashes.
enum class FirstWord {
  kNone,
  kYamlFile,
  // A model, or the file of a run (cli/run_file.h): what that has trained.
  kModel,
  kModelToMeasure,  // the same, with the data and the options of the run
  kModelToTrain,    // what the run begins with, likewise
  kOneOf,
};
constexpr bool TakesModel(FirstWord word) {
  return word == FirstWord::kModel || word == FirstWord::kModelToMeasure || word == FirstWord::kModelToTrain;
}

using OptionsReader = std::function<void(const OptionSet&)>;

// One command as data. Its file defines it; help, completion scripts and the man page are made from it.
struct Command {
  const char* name;
  const char* summary;  // one line
  const char* usage;    // "usage: temper NAME ...", an empty line, and what the command does
  FirstWord first_word;
  const char* words;  // kOneOf: the possible first words, separated by spaces
  // Returns the exit code, or an error that becomes 1 (2 for kInvalidArgument).
  Result<int> (*run)(const Arguments& arguments);
  // Calls its argument with the command's options at their defaults.
  void (*read_options)(const OptionsReader& read);
  // Its result is files; what it prints only reports on them. So it goes on when nobody reads stdout or stderr any
  // more.
  bool writes_files = false;
};

extern const Command kTrainCommand, kPlanCommand, kGenerateCommand, kChatCommand, kEvalCommand, kScoreCommand,
    kDataCommand, kImportCommand, kExportCommand, kInspectCommand, kDoctorCommand, kVersionCommand, kCompletionCommand,
    kManCommand;

// All commands, in the order of the help.
std::span<const Command* const> Commands();

// Runs the command that `arguments` name; returns the exit code.
int RunCommandLine(const Arguments& arguments);

}  // namespace temper
