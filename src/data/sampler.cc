#include "data/sampler.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace temper {

Sampler::Sampler(const TokenStore& store, std::span<const int32_t> samples, const PackingOptions& options,
                 uint64_t seed)
    : packing_(store, samples, options), state_{.seed = seed} {
  packing_.Pack(state_.seed, state_.epoch);
}

Sampler::Batch Sampler::NextBatch(int64_t rows) {
  TEMPER_CHECK(rows > 0 && rows_of_epoch() > 0) << rows << " rows wanted of " << rows_of_epoch();
  if (state_.next_row == rows_of_epoch()) {
    state_ = {.seed = state_.seed, .epoch = state_.epoch + 1, .next_row = 0};
    packing_.Pack(state_.seed, state_.epoch);
  }
  const Batch batch{
      .first_row = state_.next_row, .rows = std::min(rows, rows_of_epoch() - state_.next_row), .epoch = state_.epoch};
  state_.next_row += batch.rows;
  return batch;
}

Status Sampler::Restore(const SamplerState& state) {
  packing_.Pack(state.seed, std::max<int64_t>(state.epoch, 0));
  if (state.epoch < 0 || state.next_row < 0 || state.next_row > rows_of_epoch()) {
    const int64_t rows = rows_of_epoch();
    packing_.Pack(state_.seed, state_.epoch);
    return Corrupt(
        fmt::format("the saved sampler is at row {} of epoch {}, but the data set has {} rows per epoch: "
                    "the data or max_seq_len has changed since the checkpoint",
                    state.next_row, state.epoch, rows));
  }
  state_ = state;
  return OkStatus();
}

double Sampler::epochs_done() const {
  if (rows_of_epoch() == 0) return 0;
  return static_cast<double>(state_.epoch) +
         static_cast<double>(state_.next_row) / static_cast<double>(rows_of_epoch());
}

Result<StepCount> StepsOf(int64_t rows_per_epoch, int64_t rows_per_step, double epochs, int64_t max_steps) {
  if (rows_per_epoch <= 0) return InvalidArgument("the data set has no rows to train on");
  if (rows_per_step <= 0)
    return InvalidArgument(fmt::format("a step of {} rows: it needs at least one", rows_per_step));
  StepCount steps;
  steps.per_epoch = (rows_per_epoch - 1) / rows_per_step + 1;
  if (max_steps > 0) {
    steps.total = max_steps;
    return steps;
  }
  const double total = std::ceil(epochs * static_cast<double>(steps.per_epoch));
  // Beyond 2^53 a double cannot count single steps; no run gets there.
  if (!(epochs > 0) || !(total <= 0x1p53)) {
    return InvalidArgument(fmt::format("num_train_epochs is {}: it should be above 0 (or set max_steps)", epochs));
  }
  steps.total = static_cast<int64_t>(total);
  return steps;
}

Result<StepCount> StepsOf(Packing& packing, uint64_t seed, int64_t rows_per_step, double epochs, int64_t max_steps) {
  // Each epoch is packed to count its rows; more than these are a mistake, or want max_steps.
  constexpr double kMostEpochs = 100'000;
  packing.Pack(seed, 0);
  TEMPER_ASSIGN_OR_RETURN(StepCount steps, StepsOf(packing.rows(), rows_per_step, epochs, max_steps));
  if (!packing.rows_vary() || max_steps > 0) return steps;
  if (epochs > kMostEpochs) {
    return InvalidArgument(fmt::format(
        "num_train_epochs is {}: at most {} where files have passes that are not whole numbers", epochs, kMostEpochs));
  }
  steps.total = 0;
  for (int64_t epoch = 0; static_cast<double>(epoch) < epochs; ++epoch) {
    packing.Pack(seed, epoch);
    const double part = std::min(epochs - static_cast<double>(epoch), 1.0);
    TEMPER_ASSIGN_OR_RETURN(const StepCount own, StepsOf(packing.rows(), rows_per_step, part));
    steps.total += own.total;
  }
  return steps;
}

}  // namespace temper
