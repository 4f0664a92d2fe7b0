// Combines the statistics of a row that ranks with a shared vocabulary each took of their part
// (graph/ops/loss_scratch.h). The same arithmetic for every kernel, so that all ranks get the same bits.
#pragma once

#include <cstdint>

namespace temper {

// Of a row of logits over the whole vocabulary: its largest, the sum of exp(logit - largest), its cross-entropy.
struct RowOfLogits {
  double largest, sum, loss;
};

// The labels of a loss, smoothed by `smoothing` over `words` words.
struct Labels {
  double smoothing = 0;
  int64_t words = 0;

  // What of a row's logits is subtracted from the log of their sum of exponentials.
  double Expected(double target, double sum_of_logits) const {
    if (smoothing == 0) return target;
    return (1 - smoothing) * target + smoothing * (sum_of_logits / static_cast<double>(words));
  }
};

// `all_RNS`: from every rank the S statistics of n rows. A NaN in any carries over to sum and loss.
RowOfLogits AddUpRow(const float* all_RNS, int64_t ranks, int64_t n, int64_t row, const Labels& labels);

}  // namespace temper
