// Learning-rate schedules: the learning rate of an optimizer step as a pure function of its number, in double. They
// equal transformers' get_scheduler to the last bits (tests/schedule), so a run moved from there keeps its curve.
//
// Steps count from 0: At(0) is the rate of the first update, which is 0 under a linear warmup, as in transformers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"

namespace temper {

enum class ScheduleKind {
  kLinear,
  kCosine,
  kCosineWithMinLr,
  kCosineWithRestarts,
  kPolynomial,
  kInverseSqrt,
  kConstant,
  kConstantWithWarmup,
  kWarmupStableDecay
};

// How a warmup_stable_decay schedule rises and falls; kOneMinusSqrt is "1-sqrt".
enum class RampShape { kLinear, kCosine, kOneMinusSqrt };

struct Schedule {
  ScheduleKind kind = ScheduleKind::kCosine;
  double learning_rate = 0;  // the peak
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
  double num_cycles = 0.5;  // for the cosine kinds; 0.5 falls once from the peak to the floor; restarts: how many falls
  double min_lr_rate = 0;   // floor as a part of the peak, for cosine_with_min_lr and warmup_stable_decay

  // polynomial only.
  double lr_end = 1e-7;  // the rate at the end, below the peak
  double power = 1;

  // inverse_sqrt only: the rate falls by sqrt(timescale / step). Default: warmup_steps, or 10,000 without warmup.
  std::optional<int64_t> timescale;

  // warmup_stable_decay only.
  int64_t decay_steps = 0;
  std::optional<int64_t> stable_steps;  // default: total_steps minus warmup and decay
  RampShape warmup_shape = RampShape::kLinear;
  RampShape decay_shape = RampShape::kCosine;

  // The rate of update number `step` (from 0). Defined for every step >= 0, also beyond total_steps.
  double At(int64_t step) const;

  // An error if the phases of a warmup_stable_decay do not fit into total_steps, or lr_end is not below the peak.
  Status Check() const;
  // Of a warmup that is longer than the run, which transformers allows, too.
  std::optional<std::string> Warning() const;
};

// ceil(ratio * total_steps), rounded as in transformers.
int64_t WarmupSteps(double ratio, int64_t total_steps);

}  // namespace temper
