#include "train/time_left.h"

#include <algorithm>

namespace temper {

void TimeLeft::Stepped(Seconds step, Seconds waited) {
  const double seconds = std::max(0.0, step.v - waited.v);
  // Warm-up of kernels and pages makes a run's first step slow; later steps outweigh it.
  step_ = step_ == 0 ? seconds : 0.8 * step_ + 0.2 * seconds;
  if (saves_.n > 0) saves_.sum += waited.v;
}

Seconds TimeLeft::Of(const ToCome& to_come) const {
  double seconds = static_cast<double>(to_come.steps) * step_;
  seconds += static_cast<double>(to_come.evaluations) * evaluations_.value();
  if (to_come.saves == 0) return Seconds{seconds};
  return Seconds{seconds + static_cast<double>(to_come.saves - 1) * saves_.value() +
                 std::max(saves_.value(), last_save_)};
}

}  // namespace temper
