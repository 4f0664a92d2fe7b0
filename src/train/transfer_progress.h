// TransferProgress: shows on stderr the progress of reading or writing a model: a bar on a terminal, a line every ten
// seconds in a pipe. Transfers of less than a second show nothing.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string_view>

#include "base/progress_display.h"
#include "base/units.h"

namespace temper {

class TransferProgress {
 public:
  using Clock = std::chrono::steady_clock;
  // `what` ("load") must outlive this.
  explicit TransferProgress(std::string_view what, std::function<Clock::time_point()> now = Clock::now);

  // `rows`: of data, if it is read.
  void Update(Bytes done, Bytes total, std::optional<int64_t> rows = std::nullopt);
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
