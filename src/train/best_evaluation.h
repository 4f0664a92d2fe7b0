// BestEvaluation: the best evaluation of a run, and for how long there has been none that is better, as transformers'
// EarlyStoppingCallback counts it. A value, part of a run's progress.
#pragma once

#include <cstdint>
#include <optional>

#include "settings/best_metric.h"

namespace temper {

struct BestEvaluation {
  BestMetric by;
  std::optional<double> value;  // the best so far
  int64_t step = 0;             // that gave it
  // Evaluations in a row that were not better than the best before by more than the threshold. The best itself follows
  // every better one: many small gains end the run, too.
  int64_t without_gain = 0;

  void Take(double now, int64_t at_step, double threshold) {
    const double gain = !value ? 0 : by.greater_is_better ? now - *value : *value - now;
    without_gain = !value || gain > threshold ? 0 : without_gain + 1;
    if (value && !by.better(now, *value)) return;
    value = now;
    step = at_step;
  }
};

}  // namespace temper
