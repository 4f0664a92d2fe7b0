// Combines the statistics of a row that ranks with a shared vocabulary each took of their part
// (graph/ops/loss_scratch.h). The same arithmetic for every kernel, so that all ranks get the same bits.
#pragma once

#include <cstdint>

#include "graph/ops/loss_scratch.h"
#include "graph/ops/smooth_labels.h"

namespace temper {

// Of a row of logits over the whole vocabulary: its largest, the sum of exp(logit - largest), its cross-entropy; the
// first word of the largest logit, -1 where statistics.top is false.
struct RowOfLogits {
  double largest, sum, loss;
  int64_t top = -1;
};

// `all_RNS`: from every rank the S statistics of n rows. A NaN in any carries over to sum and loss.
RowOfLogits AddUpRow(const float* all_RNS, int64_t ranks, int64_t n, int64_t row, LossStatistics statistics,
                     const SmoothLabels<double>& labels);

}  // namespace temper
