// Peers: the ranks that share a run's batches, as seen from one of them.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "device/communicator.h"

namespace temper {

struct Peers {
  Communicator* communicator = nullptr;  // null: this rank is alone
  int64_t data_ranks = 1;                // number of ranks with their own rows
  int64_t data_rank = 0;                 // this one's number among them
  // Ranks of cp, each of which has a part of the tokens of the same rows, and this one's number among them.
  int64_t context_ranks = 1, context_rank = 0;
  int64_t stages = 1;  // of a pipeline: only the last one has losses

  // Adds up over the batch: each token counts once, even if several ranks have it.
  Status Sum(std::span<double> values) const {
    if (communicator == nullptr) return OkStatus();
    TEMPER_RETURN_IF_ERROR(communicator->AllReduceSum(values));
    const double copies = static_cast<double>(communicator->size()) / static_cast<double>(data_ranks * context_ranks);
    for (double& v : values) v /= copies;
    return OkStatus();
  }
  // The same for integers, exact.
  template <size_t n>
  Status SumExact(std::array<int64_t, n>& values) const {
    if (communicator == nullptr) return OkStatus();
    // In halves of 32 bits: a double holds their sums over 2^21 ranks exactly.
    std::array<double, 2 * n> halves;
    for (size_t i = 0; i < n; ++i) {
      TEMPER_CHECK(values[i] >= 0) << values[i];
      halves[2 * i] = static_cast<double>(values[i] >> 32);
      halves[2 * i + 1] = static_cast<double>(values[i] & 0xFFFFFFFF);
    }
    TEMPER_RETURN_IF_ERROR(communicator->AllReduceSum(halves));
    const int64_t copies = communicator->size() / (data_ranks * context_ranks);
    for (size_t i = 0; i < n; ++i) {
      const auto high = static_cast<int64_t>(halves[2 * i]), low = static_cast<int64_t>(halves[2 * i + 1]);
      values[i] = ((high << 32) + low) / copies;
    }
    return OkStatus();
  }
  // As Sum, for values that only ranks of the last stage have (the others have zeros).
  Status SumOfLastStage(std::span<double> values) const {
    TEMPER_RETURN_IF_ERROR(Sum(values));
    for (double& v : values) v *= static_cast<double>(stages);
    return OkStatus();
  }
  // Whether `mine` is true on any rank.
  Result<bool> Any(bool mine) const {
    double any = mine ? 1 : 0;
    if (communicator != nullptr) TEMPER_RETURN_IF_ERROR(communicator->AllReduceMax({&any, 1}));
    return any > 0;
  }
};

}  // namespace temper
