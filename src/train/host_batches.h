// HostBatches: the host's side of micro-batches: an array for each input that a Program makes from data, and for each
// report that it makes. Allocates once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/column_fillers.h"
#include "objective/objective.h"
#include "runtime/executor.h"
#include "train/peers.h"

namespace temper {

class HostBatches {
 public:
  // Arrays for `micro_batches` times the input of one run of `executor`'s Program, which makes `reports`, and `also`,
  // an output of f32 (null: none).
  HostBatches(const Executor& executor, int64_t micro_batches, std::span<const ReportSpec> reports,
              const char* also = nullptr);

  int64_t tokens_per_micro_batch() const { return tokens_; }
  int64_t micro_batches() const { return micro_batches_; }
  // The columns of a micro-batch that the Program reads, to be filled (data/batch.h).
  std::span<const ColumnArray> columns(int64_t micro_batch) const { return columns_[static_cast<size_t>(micro_batch)]; }
  // The values of report `k`.
  std::span<const float> report(size_t k) const { return reports_[k]; }
  // Of all micro-batches; empty if this stage of a pipeline does not make it.
  std::span<const float> also() const { return also_; }
  // Of a micro-batch, as filled in; empty if the Program does not read it. REQUIRES: `column` is of i32.
  std::span<const int32_t> values(int64_t micro_batch, const ColumnSpec& column) const;
  // Adds up all values of each report; or those of one micro-batch.
  void AddReports(ReportValues* sums) const;
  void AddReports(int64_t micro_batch, ReportValues* sums) const;
  // `peers`: gives the number of rows of a micro-batch before this rank's. `longest`: tokens of a micro-batch of the
  // longest rows, by which draws are numbered; 0: these are.
  void SetRng(uint64_t seed, int64_t step, const Peers& peers, int64_t longest = 0);
  std::span<const HostArray> io() const { return io_; }

 private:
  const int64_t tokens_, micro_batches_;
  std::vector<std::vector<std::byte>> values_;     // of each column, of all micro-batches
  std::vector<std::vector<ColumnArray>> columns_;  // of each micro-batch
  std::vector<int64_t> rng_;
  std::vector<std::vector<float>> reports_;
  std::vector<float> also_;
  std::vector<HostArray> io_;
};

}  // namespace temper
