// Utilisation: how each rank of a run spends its steps, for
// metrics.jsonl: a rank that waits much waits for one that computes much.
#pragma once

#include <vector>

#include "runtime/timed_kernels.h"
#include "train/metrics.h"
#include "train/peers.h"

namespace temper {

class Utilisation {
 public:
  // The times of a run's kernels and its collectives; both must outlive this.
  Utilisation(const KernelTime& kernels, const KernelTime& collectives)
      : kernels_(kernels), collectives_(collectives) {}

  // Rows of all ranks in order, since the last call; `step_seconds`: time in steps on this rank since then. Empty for a
  // single rank. All ranks call this at the same place.
  Result<std::vector<RankRow>> SinceLast(double step_seconds, const Peers& peers);

 private:
  const KernelTime& kernels_;
  const KernelTime& collectives_;
  int64_t seen_kernels_ = 0, seen_collectives_ = 0, seen_beside_ = 0;  // nanoseconds
};

}  // namespace temper
