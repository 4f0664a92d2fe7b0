// ModelWork: the arithmetic that a model requires per token, forward. MFU counts it, so it excludes recomputed and
// wasted work. Each op with matrix products states its own (OpRule::model_work).
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

namespace temper {

struct ModelWork {
  // Elements of weights that a token is multiplied with, counting only those it passes: of experts, the active ones.
  int64_t weights = 0;
  // FLOPs per pair of a query and a key that it attends to, by the window of visible keys (0: none).
  std::map<int64_t, double> flops_per_pair;
};

// Pairs of a query and a key in one causal document of `length` tokens, each of which sees `window` (0: all) up to
// itself.
inline double AttendedPairs(int64_t length, int64_t window) {
  const auto pairs = [](int64_t n) { return static_cast<double>(n) * (static_cast<double>(n) + 1) / 2; };
  if (window <= 0 || length <= window) return pairs(length);
  return pairs(window) + static_cast<double>(length - window) * static_cast<double>(window);
}

}  // namespace temper
