#include "backend/cpu/products/loss_statistics.h"

#include <algorithm>
#include <cmath>

#include "graph/ops/loss_scratch.h"

namespace temper {

RowOfLogits AddUpRow(const float* all_RNS, int64_t ranks, int64_t n, int64_t row, const SmoothLabels<double>& labels) {
  const bool smooth = labels.smoothing > 0;
  const auto of = [&](int64_t rank) { return all_RNS + (rank * n + row) * (kLossLogits + smooth); };
  double largest = -INFINITY, target = -INFINITY, sum = 0, logits = 0;
  // Comparisons with NaN are false: a NaN comes back through the sum, whose every term it is in.
  for (int64_t r = 0; r < ranks; ++r) {
    largest = std::max<double>(largest, of(r)[kLossLargest]);
    target = std::max<double>(target, of(r)[kLossTarget]);
  }
  for (int64_t r = 0; r < ranks; ++r) {
    sum += of(r)[kLossSum] * std::exp(of(r)[kLossLargest] - largest);
    if (smooth) logits += of(r)[kLossLogits];
  }
  // The log is at least 0 and the rest too: nothing cancels.
  return {largest, sum, std::log(sum) + (largest - labels.Expected(target, logits))};
}

}  // namespace temper
