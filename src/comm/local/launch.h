// Launch: starts a run's ranks on this machine as copies of this program, and ends them together.
//
// A rank is this executable with the same arguments and an environment variable that gives its number and the place of
// the shared memory (RankFromEnvironment). Needs neither privileges nor as many processors as ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/units.h"

namespace temper {

struct LaunchSpec {
  int ranks = 1;
  // Includes the program's name; empty: the arguments of this process.
  std::vector<std::string> arguments;
  // How long ranks have to end after the run is stopped, before they are killed.
  Seconds grace{5};
};

struct LaunchResult {
  // Of the first rank that failed, 128 + signal if a signal ended it; 0 if all succeeded.
  int exit_code = 0;
  // How that rank died, if it could not tell the user itself.
  std::string message;
};

// Returns when all ranks have ended. Passes SIGINT, SIGTERM, SIGHUP and SIGUSR1 on to them; if this process is killed,
// they get SIGTERM. A rank that fails stops the run of all others (Communicator's errors). Thread rule: the main
// thread, and no other thread may take these signals or SIGCHLD.
Result<LaunchResult> Launch(const LaunchSpec& spec);

// What Launch told this process; nullopt if it is not a rank. Can be asked once: processes that this one starts are not
// ranks. The caller owns the descriptor `file`.
struct LaunchedRank {
  int rank = 0, size = 1;
  int file = -1;
};
std::optional<LaunchedRank> RankFromEnvironment();

}  // namespace temper
