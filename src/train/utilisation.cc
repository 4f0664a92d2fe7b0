#include "train/utilisation.h"

#include <algorithm>
#include <utility>

#include "base/machine_memory.h"

namespace temper {
namespace {

constexpr size_t kNumbers = 4;  // of a rank

// Seconds by which `sum` has grown since `seen`.
double Since(const std::atomic<int64_t>& sum, int64_t* seen) {
  const int64_t now = sum.load(std::memory_order_relaxed);
  const int64_t before = std::exchange(*seen, now);
  return static_cast<double>(now - before) * 1e-9;
}

}  // namespace

Result<std::vector<RankRow>> Utilisation::SinceLast(double step_seconds, const Peers& peers) {
  const double kernels = Since(kernels_.nanoseconds, &seen_kernels_);
  const double collectives = Since(collectives_.nanoseconds, &seen_collectives_);
  const double beside = Since(collectives_.beside_nanoseconds, &seen_beside_);
  if (peers.communicator == nullptr) return std::vector<RankRow>();
  const auto ranks = static_cast<size_t>(peers.communicator->size());
  std::vector<double> all(kNumbers * ranks);
  double* const own = all.data() + kNumbers * static_cast<size_t>(peers.communicator->rank());
  own[0] = kernels / step_seconds;
  own[1] = collectives / step_seconds;
  own[2] = beside / step_seconds;
  own[3] = static_cast<double>(PeakResidentMemory().v);
  TEMPER_RETURN_IF_ERROR(peers.communicator->AllReduceSum(all));
  std::vector<RankRow> rows(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    const double* const of = all.data() + kNumbers * r;
    rows[r] = {.kernels = of[0],
               .collectives = of[1],
               .waiting = std::max(0.0, 1 - of[0] - of[1]),
               .beside = of[2],
               .resident_peak_bytes = static_cast<int64_t>(of[3])};
  }
  return rows;
}

}  // namespace temper
