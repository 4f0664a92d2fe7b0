// StderrLog: lines on stderr, and progress: a bar that is redrawn on a terminal, lines in a pipe.
// Each line is one write. A line that cannot be written (closed pipe) is lost: it must not end a run.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "base/log_sink.h"
#include "base/progress_text.h"

namespace temper {

class StderrLog final : public LogSink {
 public:
  // Draws bars where StderrIsRich(), with the locale's characters.
  StderrLog() = default;
  StderrLog(bool rich, bool unicode) : rich_(rich), unicode_(unicode) {}

  // Makes this process one of several ranks: only the first says everything, the others only errors. Errors begin with
  // `name`, if it is not empty. Before another thread says something.
  void SetRank(int rank, std::string_view name);

  // Warnings begin with "warning: ", errors with "error: ", in colour where it is rich. The line takes the place of a
  // bar, which is drawn again below it: at once if this thread shows it, else with its next state.
  void Line(LogLevel level, std::string_view line) override;
  // A bar is redrawn at most ten times a second.
  void Progress(const ProgressState& state, bool logged) override;
  // Leaves the last state of the bar on its line.
  void EndProgress() override;

  // As a line, for a literal, from a signal handler: takes no lock and no memory.
  void LineInSignalHandler(std::string_view line);

 private:
  void Draw();

  const std::optional<bool> rich_, unicode_;  // nullopt: asked when a bar begins
  std::atomic<int> rank_ = 0;
  std::string error_prefix_ = "error: ";
  std::atomic<bool> unfinished_ = false;  // a bar stands on the terminal's last line
  // Of the thread that shows progress.
  std::atomic<std::thread::id> shows_ = {};
  ProgressState last_;
  bool drawn_ = false;    // a bar was drawn since progress began
  bool pending_ = false;  // last_ is newer than what is drawn
  std::chrono::steady_clock::time_point last_draw_;
};

// Where threads without a LogScope say what they say. It is never destroyed.
StderrLog& ProcessLog();

// True where stderr is a terminal that is not dumb, and NO_COLOR is unset: colours and live redrawing are welcome.
bool StderrIsRich();

}  // namespace temper
