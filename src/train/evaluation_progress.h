// EvaluationProgress: shows how far an evaluation is: in the bar of a display on a terminal, else as a line every ten
// seconds. One thread.
#pragma once

#include <chrono>
#include <cstdint>

#include "train/progress.h"

namespace temper {

class EvaluationProgress {
 public:
  // `display` must outlive this.
  explicit EvaluationProgress(ProgressDisplay& display);
  // `done` of `rows` are evaluated.
  void Update(int64_t done, int64_t rows);

 private:
  using Clock = std::chrono::steady_clock;

  ProgressDisplay& display_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point next_line_;
};

}  // namespace temper
