#include "base/progress_display.h"

namespace temper {

void ProgressDisplay::Update(const ProgressState& state, bool logged) {
  if (silent_) return;
  shown_ = true;
  log_.Progress(state, logged);
}

void ProgressDisplay::Finish() {
  if (shown_) log_.EndProgress();
  shown_ = false;
}

}  // namespace temper
