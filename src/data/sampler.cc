#include "data/sampler.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/check.h"

namespace temper {
namespace {

double EpochsDone(const SamplerState& at, int64_t rows_per_epoch) {
  if (rows_per_epoch == 0) return 0;
  return static_cast<double>(at.epoch) + static_cast<double>(at.next_row) / static_cast<double>(rows_per_epoch);
}

Status EndsBefore(double epochs, double done) {
  return InvalidArgument(
      fmt::format("num_train_epochs {} is less than the {:.2f} epochs of the checkpoint to resume from: raise it, or "
                  "resume from an earlier one",
                  epochs, done));
}

int64_t StepsFor(int64_t rows, int64_t rows_per_step) {
  return (rows + rows_per_step - 1) / rows_per_step;
}

// Steps from row `first` of an epoch to the end of its first `part`; nullopt if that lies before `first`.
std::optional<int64_t> StepsLeft(int64_t rows, int64_t rows_per_step, double part, int64_t first) {
  // 1.1 epochs minus the first leave 0.1000...09 of the second.
  constexpr double kRounding = 1e-9;
  const double steps = std::ceil(part * static_cast<double>(StepsFor(rows, rows_per_step)) - kRounding);
  const int64_t end = std::min(static_cast<int64_t>(steps) * rows_per_step, rows);
  if (first > end) return std::nullopt;
  return StepsFor(end - first, rows_per_step);
}

}  // namespace

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
  return EpochsDone(state_, rows_of_epoch());
}

Result<StepCount> StepsOf(int64_t rows_per_epoch, int64_t rows_per_step, double epochs, int64_t max_steps,
                          const StepsDone& done) {
  if (rows_per_epoch <= 0) return InvalidArgument("the data set has no rows to train on");
  if (rows_per_step <= 0)
    return InvalidArgument(fmt::format("a step of {} rows: it needs at least one", rows_per_step));
  StepCount steps;
  steps.per_epoch = StepsFor(rows_per_epoch, rows_per_step);
  if (max_steps > 0) {
    if (max_steps < done.steps) {
      return InvalidArgument(
          fmt::format("max_steps {} is less than the {} steps of the checkpoint to resume from: raise "
                      "it, or resume from an earlier one",
                      max_steps, done.steps));
    }
    steps.total = max_steps;
    return steps;
  }
  const double total = std::ceil(epochs * static_cast<double>(steps.per_epoch));
  // Beyond 2^53 a double cannot count single steps; no run gets there.
  if (!(epochs > 0) || !(total <= 0x1p53)) {
    return InvalidArgument(fmt::format("num_train_epochs is {}: it should be above 0 (or set max_steps)", epochs));
  }
  const auto whole = static_cast<int64_t>(total);
  const int64_t end_epoch = whole / steps.per_epoch;
  const int64_t end_row = std::min(whole % steps.per_epoch * rows_per_step, rows_per_epoch);
  int64_t left = 0;
  if (done.at.epoch < end_epoch) {
    left = StepsFor(rows_per_epoch - done.at.next_row, rows_per_step) +
           (end_epoch - done.at.epoch - 1) * steps.per_epoch + whole % steps.per_epoch;
  } else if (done.at.epoch == end_epoch && done.at.next_row <= end_row) {
    left = StepsFor(end_row - done.at.next_row, rows_per_step);
  } else {
    return EndsBefore(epochs, EpochsDone(done.at, rows_per_epoch));
  }
  steps.total = done.steps + left;
  return steps;
}

Result<StepCount> StepsOf(Packing& packing, uint64_t seed, int64_t rows_per_step, double epochs, int64_t max_steps,
                          const StepsDone& done) {
  // Each epoch is packed to count its rows; more than these are a mistake, or want max_steps.
  constexpr double kMostEpochs = 100'000;
  packing.Pack(seed, 0);
  if (!packing.rows_vary() || max_steps > 0) {
    return StepsOf(packing.rows(), rows_per_step, epochs, max_steps, done);
  }
  TEMPER_ASSIGN_OR_RETURN(StepCount steps, StepsOf(packing.rows(), rows_per_step, epochs));
  if (epochs > kMostEpochs) {
    return InvalidArgument(fmt::format(
        "num_train_epochs is {}: at most {} where files have passes that are not whole numbers", epochs, kMostEpochs));
  }
  steps.total = done.steps;
  for (int64_t epoch = done.at.epoch;; ++epoch) {
    packing.Pack(seed, epoch);
    const double part = std::min(epochs - static_cast<double>(epoch), 1.0);
    const int64_t first_row = epoch == done.at.epoch ? done.at.next_row : 0;
    const auto left = StepsLeft(packing.rows(), rows_per_step, part, first_row);
    if (!left) return EndsBefore(epochs, EpochsDone(done.at, packing.rows()));
    steps.total += *left;
    if (static_cast<double>(epoch + 1) >= epochs) return steps;
  }
}

}  // namespace temper
