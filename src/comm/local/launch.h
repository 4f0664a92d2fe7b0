// Launch: starts a run's ranks on this machine as copies of this program, and ends them together.
//
// A rank is this executable with the same arguments and an environment variable that says which rank it is and where
// the memory is that all share (RankFromEnvironment). Needs neither privileges nor as many processors as ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/units.h"

namespace temper {

struct LaunchSpec {
  int ranks = 1;
  // With the program's name; empty: those of this process.
  std::vector<std::string> arguments;
  // How long ranks have to end once the run is stopped, before they are made to.
  Seconds grace{5};
};

struct LaunchResult {
  // Of the first rank that failed, 128 + signal where a signal ended it; 0 where all are well.
  int exit_code = 0;
  // How that rank died, where it could not tell the user itself.
  std::string message;
};

// Returns when all ranks have ended. SIGINT, SIGTERM, SIGHUP and SIGUSR1 are passed on to them; where this process is
// killed, they get SIGTERM. A rank that ends badly stops the run of all others (Communicator's errors). Thread rule:
// the main thread, and no other one may take these signals or SIGCHLD.
Result<LaunchResult> Launch(const LaunchSpec& spec);

// What Launch told this process; nothing where it is not a rank. Asked once: processes that this one starts are no
// ranks. The caller owns the descriptor `file`.
struct LaunchedRank {
  int rank = 0, size = 1;
  int file = -1;
};
std::optional<LaunchedRank> RankFromEnvironment();

}  // namespace temper
