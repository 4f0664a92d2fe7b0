// Sampler: the order in which a run sees its rows. Its whole state is {seed, epoch, next_row}.
//
// A batch never spans two epochs: the rows left at the end of an epoch make one smaller batch, as in Hugging Face's
// Trainer. So every sample is seen as often as the packing draws it, by default exactly once per epoch, and the loss (a
// mean over the batch's supervised tokens) needs no correction. The number of steps is known beforehand (StepsOf).
//
// The global index of a token is (its row's place in the batch) * max_seq_len + its place in the row. Ranks and
// micro-batches get contiguous parts of a batch, so the index does not depend on the mesh.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "data/packing.h"

namespace temper {

struct SamplerState {
  uint64_t seed = 0;
  int64_t epoch = 0;     // from 0
  int64_t next_row = 0;  // in the epoch's order; rows_of_epoch() when the epoch is used up
  bool operator==(const SamplerState&) const = default;
};

// One thread at a time. Nothing allocates after the constructor.
class Sampler {
 public:
  Sampler(const TokenStore& store, std::span<const int32_t> samples, const PackingOptions& options, uint64_t seed);

  // The next `rows` rows, or the rest of the epoch: begin and count for packing().row(). Starts the next epoch first if
  // this one is used up. REQUIRES: rows > 0, rows_of_epoch() > 0.
  struct Batch {
    int64_t first_row = 0;
    int64_t rows = 0;
    int64_t epoch = 0;
  };
  Batch NextBatch(int64_t rows);

  const SamplerState& state() const { return state_; }
  // Continues from `state`. Error: it cannot be a state of this data set.
  Status Restore(const SamplerState& state);

  int64_t rows_of_epoch() const { return packing_.rows(); }  // of the current one (Packing::rows_vary)
  double epochs_done() const;                                // with the fraction of the current one
  const Packing& packing() const { return packing_; }

 private:
  Packing packing_;
  SamplerState state_;
};

struct StepCount {
  int64_t per_epoch = 0;  // of the first, if rows vary
  int64_t total = 0;
};

// Where a run goes on: `steps` done, perhaps with other rows per step, and the sampler there.
struct StepsDone {
  int64_t steps = 0;
  SamplerState at;
};

// Steps of a run: `epochs` times the steps of one, rounded up (0.5 epochs of 5 steps are 3), or `max_steps` if that is
// positive. A run that goes on ends at the same row as one that has had `rows_per_step` from the beginning. Errors: no
// rows, nothing to do, an end before `done`.
Result<StepCount> StepsOf(int64_t rows_per_epoch, int64_t rows_per_step, double epochs, int64_t max_steps = -1,
                          const StepsDone& done = {});
// The same for the epochs of `packing`, where their rows vary: the steps of each whole epoch, and of the last one's
// fraction, rounded up. Packs them all: 0.1 us per sample and epoch.
Result<StepCount> StepsOf(Packing& packing, uint64_t seed, int64_t rows_per_step, double epochs, int64_t max_steps = -1,
                          const StepsDone& done = {});

}  // namespace temper
