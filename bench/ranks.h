// Shared by benchmarks of meshes: ranks that are processes of this machine, and steps that they begin together.
#pragma once

#include <algorithm>
#include <vector>

#include "bench/model_step.h"
#include "comm/local/local_communicator.h"

namespace temper::bench {

// Runs `body(Communicator&)` in several processes, started with
// the arguments of this one. Returns main's exit code.
template <class Body>
int OnRanks(int ranks, const Body& body) {
  if (const auto launched = RankFromEnvironment()) {
    body(*Must(JoinLaunched(*launched)));
    return 0;
  }
  return Must(Launch({.ranks = ranks})).exit_code;
}

// Seconds of the median step. `communicator`: nullptr for a single rank.
inline double MedianStep(ModelStep* step, Communicator* communicator, int steps) {
  std::vector<double> seconds;
  for (int i = 0; i < steps; ++i) {
    if (communicator != nullptr) Must(communicator->Barrier());
    seconds.push_back(step->Run());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace temper::bench
