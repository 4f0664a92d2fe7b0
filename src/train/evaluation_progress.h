// EvaluationProgress: shows how far an evaluation is: in the bar of a display on a terminal, else as a line every ten
// seconds. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "base/progress_display.h"

namespace temper {

class EvaluationProgress {
 public:
  using Clock = std::chrono::steady_clock;
  // `display` must outlive this, and `what` every use.
  explicit EvaluationProgress(ProgressDisplay& display, std::function<Clock::time_point()> now = Clock::now,
                              std::string_view what = "eval row");
  // `done` of `rows` are evaluated.
  void Update(int64_t done, int64_t rows);

 private:
  ProgressDisplay& display_;
  const std::function<Clock::time_point()> now_;
  const std::string_view what_;
  const Clock::time_point begin_;
  Clock::time_point next_line_;
};

}  // namespace temper
