#include "backend/cpu/products/loss_statistics.h"

#include <algorithm>
#include <cmath>

namespace temper {

RowOfLogits AddUpRow(const float* all_RNS, int64_t ranks, int64_t n, int64_t row, LossStatistics statistics,
                     const SmoothLabels<double>& labels) {
  const int64_t S = statistics.count();
  const auto of = [&](int64_t rank) { return all_RNS + (rank * n + row) * S; };
  double largest = -INFINITY, target = -INFINITY, sum = 0, logits = 0;
  // Comparisons with NaN are false: a NaN comes back through the sum, whose every term it is in.
  for (int64_t r = 0; r < ranks; ++r) {
    largest = std::max<double>(largest, of(r)[kLossLargest]);
    target = std::max<double>(target, of(r)[kLossTarget]);
  }
  for (int64_t r = 0; r < ranks; ++r) {
    sum += of(r)[kLossSum] * std::exp(of(r)[kLossLargest] - largest);
    if (statistics.smooth) logits += of(r)[kLossLogits];
  }
  // The log is at least 0 and the rest too: nothing cancels.
  RowOfLogits whole{largest, sum, std::log(sum) + (largest - labels.Expected(target, logits))};
  // Ranks come in the order of their axes, which need not be that of their words.
  float most = -INFINITY;
  for (int64_t r = 0; r < ranks && statistics.top; ++r) {
    const float logit = of(r)[statistics.top_logit()];
    const auto word = static_cast<int64_t>(of(r)[statistics.top_word()]);
    if (word < 0 || logit < most || (logit == most && whole.top >= 0 && whole.top < word)) continue;
    most = logit;
    whole.top = word;
  }
  return whole;
}

}  // namespace temper
