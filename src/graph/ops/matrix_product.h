// Scratch of a blocked matrix product, for the workspace rules of the ops that are made of them.
#pragma once

#include <algorithm>

#include "base/units.h"
#include "tensor/dtype.h"

namespace temper {

// At least what a backend's product of [m, k] by [n, k] takes: panels of a block of either operand (held as f32 where
// the machine has no bf16 arithmetic) and, where a bf16 output is summed over several blocks of k, f32 sums.
// The numbers bound those of backend/cpu/gemm.cc, which checks that it stays within.
inline Bytes MatrixProductScratch(int64_t m, int64_t n, int64_t k, DType out, int threads) {
  constexpr int64_t kTile = 32, kSlack = 128;        // largest tile; slack and alignment of a block
  constexpr int64_t kShared = 4 << 20;               // panels of B
  constexpr int64_t kPerThread = 448 << 10;          // panels of A
  constexpr int64_t kSums = 8 << 20, kDepth = 1024;  // f32 sums where k is deeper
  const auto padded = [](int64_t x) { return (x + kTile - 1) / kTile * kTile; };
  Bytes bytes = {std::min(padded(n) * padded(k) * 4, kShared) + kSlack};
  bytes += Bytes{std::min(padded(m) * padded(k) * 4, kPerThread) + kSlack} * threads;
  if (out != DType::kF32 && k > kDepth) bytes += Bytes{std::min(m * padded(n) * 4, std::max(m * kTile * 4, kSums))};
  return AlignUp(bytes, 64);
}

}  // namespace temper
