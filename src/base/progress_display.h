// ProgressDisplay: shows the progress of one thing wherever the lines of the thread that made it go (base/log.h).
// Thread rule: one thread. One display shows something at a time.
#pragma once

#include "base/log.h"
#include "base/progress_text.h"

namespace temper {

class ProgressDisplay {
 public:
  // `silent`: show nothing, because another rank does.
  explicit ProgressDisplay(bool silent = false) : log_(CurrentLog()), silent_(silent) {}
  ~ProgressDisplay() { Finish(); }
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  // `logged`: worth a line of a log; other states only move a bar.
  void Update(const ProgressState& state, bool logged);
  // The last state stays as it is.
  void Finish();

 private:
  LogSink& log_;
  const bool silent_;
  bool shown_ = false;
};

}  // namespace temper
