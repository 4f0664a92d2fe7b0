// The program of a rank that is a process: runs one case, named
// on the command line. Launched ranks and MPI run the same.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "device/communicator.h"

namespace temper::collectives {

using Join = std::function<Result<std::unique_ptr<Communicator>>()>;

// Writes its findings to the file "<out>.<rank>" and returns the exit code: 0, or kHeardOfFailure if a call failed.
// Cases: "conformance", "digest", "resident" (writes how many KiB of its peers' memory stay resident in a rank after a
// gather and after a reduction of kResidentCase each), "segments" (writes the files behind memory that Open MPI shares,
// as /proc/self/maps has them), "steps" (forever), and "<mishap> <rank>", where that rank does
//   abort   calls Abort            exit   ends at once with exit code 9      throw  lets an exception escape
//   kill    sends itself SIGKILL   stop   sends itself SIGSTOP               leave  returns from main
//   hang    sleeps forever
// after some steps, while the others continue until a call fails; they write its error. Steps are sums by all;
// "stages_<mishap>": transfers from rank to rank, as in a pipeline; "lanes_<mishap>": a sum at once and then one in the
// background, in which the rank waits for the others while it stops or hangs ("lanes_cross": while it waits for that).
int RunRank(const Join& join, const std::string& what, int culprit, const std::string& out, int ranks_per_host = 0);

inline constexpr Bytes kResidentCase = MiB(32);

// Calls of operator new in this process so far; under sanitizers 0.
int64_t Allocations();

inline constexpr int kHeardOfFailure = 3;

}  // namespace temper::collectives
