// Runs of a tiny model on a mesh whose ranks are threads of this process.
#pragma once

#include <thread>
#include <vector>

#include "../tiny_run.h"
#include "comm/local/local_communicator.h"

namespace temper::tiny {

// train(spec of the rank) on every rank of spec.mesh at the same time, one kernel thread each; the results by rank.
template <class Result, class Train>
std::vector<Result> OnThreadRanks(const RunSpec& spec, const Train& train) {
  const int ranks = spec.mesh.mesh.ranks();
  ThreadWorld world(ranks);
  std::vector<Result> results(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      RunSpec own = spec;
      own.mesh.rank = rank;
      own.threads = 1;
      const auto communicator = world.Join(rank);
      own.communicator = communicator.get();
      results[static_cast<size_t>(rank)] = train(own);
    });
  }
  for (std::thread& t : threads) t.join();
  return results;
}

}  // namespace temper::tiny
