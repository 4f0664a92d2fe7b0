// BestEvaluation: the lowest eval_loss of a run, and for how long there has been none that is lower, as transformers'
// EarlyStoppingCallback counts it. A value, part of a run's progress.
#pragma once

#include <cstdint>
#include <optional>

namespace temper {

struct BestEvaluation {
  std::optional<double> loss;  // the lowest so far
  int64_t step = 0;            // that gave it
  // Evaluations in a row whose loss was not lower than the lowest before by more than the threshold. The lowest itself
  // follows every lower loss: many small gains end the run, too.
  int64_t without_gain = 0;

  void Take(double eval_loss, int64_t at_step, double threshold) {
    const bool gained = !loss || *loss - eval_loss > threshold;
    without_gain = gained ? 0 : without_gain + 1;
    if (loss && eval_loss >= *loss) return;
    loss = eval_loss;
    step = at_step;
  }
};

}  // namespace temper
