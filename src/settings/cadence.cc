#include "settings/cadence.h"

#include <algorithm>
#include <cmath>

namespace temper {
namespace {

constexpr double kMostSteps = 1e15;  // an integer as a double

}  // namespace

int64_t Cadence::Times(int64_t from, int64_t to, int64_t steps_per_epoch) const {
  const int64_t every = by_epoch ? steps_per_epoch : steps;
  if (every <= 0 || from > to) return 0;
  return to / every - (from - 1) / every;
}

int64_t StepsBetween(double steps, int64_t total_steps) {
  if (steps > 0 && steps < 1) return static_cast<int64_t>(std::ceil(static_cast<double>(total_steps) * steps));
  return static_cast<int64_t>(std::min(steps, kMostSteps));
}

}  // namespace temper
