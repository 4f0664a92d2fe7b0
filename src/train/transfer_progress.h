// TransferProgress: how far the reading or writing of a model's bytes has come, on stderr, once it has taken a second:
// a bar on a terminal, a line every ten seconds in a pipe. What is over sooner shows nothing.
#pragma once

#include <chrono>
#include <functional>
#include <string_view>

#include "base/units.h"
#include "train/progress.h"

namespace temper {

class TransferProgress {
 public:
  using Clock = std::chrono::steady_clock;
  // `what` ("load") must outlive this.
  explicit TransferProgress(std::string_view what, std::function<Clock::time_point()> now = Clock::now);

  void Update(Bytes done, Bytes total);
  // Update as a function, for LoadWeights and ExportModel; must not outlive this.
  std::function<void(Bytes, Bytes)> Callback() {
    return [this](Bytes done, Bytes total) { Update(done, total); };
  }

 private:
  const std::string_view what_;
  const std::function<Clock::time_point()> now_;
  const Clock::time_point begin_;
  Clock::time_point next_line_;
  bool shown_ = false;
  ProgressDisplay display_;
};

}  // namespace temper
