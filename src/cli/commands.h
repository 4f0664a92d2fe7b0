// The commands of temper, one file each. A command gets the arguments after its name, prints results to stdout and
// everything else to stderr, and returns the process's exit code.
//
// Exit codes: 0 done; 1 an error, described on stderr; 2 an error of the command line or the configuration; 69
// another process uses the output folder, and the same command may work later; 75 stopped by SIGTERM, SIGHUP or SIGUSR1
// and 130 by SIGINT, in both cases after saving a checkpoint to resume from.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace temper {

using Arguments = std::vector<std::string>;

inline constexpr int kExitInUse = 69;          // EX_UNAVAILABLE of sysexits.h
inline constexpr int kExitStoppedByTerm = 75;  // EX_TEMPFAIL of sysexits.h: run the same command again
inline constexpr int kExitStoppedByInt = 130;  // 128 + SIGINT

int RunCommandLine(const Arguments& arguments);

// Each returns the exit code, or an error that becomes 1 (2 for kInvalidArgument, 69 for kInUse).
Result<int> TrainCommand(const Arguments& arguments);
Result<int> PlanCommand(const Arguments& arguments);
Result<int> GenerateCommand(const Arguments& arguments);
Result<int> ChatCommand(const Arguments& arguments);
Result<int> EvalCommand(const Arguments& arguments);
Result<int> DataCommand(const Arguments& arguments);
Result<int> ExportCommand(const Arguments& arguments);
Result<int> InspectCommand(const Arguments& arguments);
Result<int> DoctorCommand(const Arguments& arguments);
Result<int> VersionCommand(const Arguments& arguments);

}  // namespace temper
