// TokenWeight: how much predicting a token counts in the loss, in units of 2^-16. 0: not at all.
//
// Fixed point makes sums exact: weights add up as integers, in any order, on any mesh. A float holds every weight up to
// kLargestWeight exactly; 64 bits hold the sum over 2^39 tokens of the largest.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace temper {

using TokenWeight = uint32_t;

inline constexpr TokenWeight kUnitWeight = 1 << 16;  // 1.0: the default
inline constexpr TokenWeight kLargestWeight = 256 * kUnitWeight;

constexpr double WeightValue(int64_t sum) {
  return static_cast<double>(sum) / kUnitWeight;
}

// Rounds `weight` to a multiple of 2^-16. Error, naming `what` ("data.jsonl
// line 3: 'weight'"): it is negative, not finite, or above 256.
Result<TokenWeight> ToTokenWeight(double weight, const std::string& what);

}  // namespace temper
