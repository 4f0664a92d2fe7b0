#include "settings/schedule.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace temper {
namespace {

double Part(int64_t done, int64_t of) {
  return static_cast<double>(done) / static_cast<double>(std::max<int64_t>(1, of));
}

// The order of operations is that of transformers: the results agree to the last bit.
double CosineFall(double num_cycles, double progress) {
  return 0.5 * (1.0 + std::cos(std::numbers::pi * num_cycles * 2.0 * progress));
}

double AboveFloor(double factor, double floor) {
  return std::max(0.0, factor * (1.0 - floor) + floor);
}

double Rise(RampShape shape, double progress) {
  switch (shape) {
    case RampShape::kLinear:
      return progress;
    case RampShape::kCosine:
      return 0.5 * (1.0 - std::cos(std::numbers::pi * progress));
    case RampShape::kOneMinusSqrt:
      return 1.0 - std::sqrt(1.0 - progress);
  }
  return progress;
}

double Fall(RampShape shape, double num_cycles, double progress) {
  switch (shape) {
    case RampShape::kLinear:
      return 1.0 - progress;
    case RampShape::kCosine:
      return CosineFall(num_cycles, progress);
    case RampShape::kOneMinusSqrt:
      return 1.0 - std::sqrt(progress);
  }
  return progress;
}

double WarmupStableDecayFactor(const Schedule& s, int64_t step) {
  const int64_t stable = s.stable_steps.value_or(s.total_steps - s.warmup_steps - s.decay_steps);
  if (step < s.warmup_steps) return AboveFloor(Rise(s.warmup_shape, Part(step, s.warmup_steps)), s.min_lr_rate);
  const int64_t decay_start = s.warmup_steps + stable;
  if (step < decay_start) return 1.0;
  if (step >= decay_start + s.decay_steps) return s.min_lr_rate;
  return AboveFloor(Fall(s.decay_shape, s.num_cycles, Part(step - decay_start, s.decay_steps)), s.min_lr_rate);
}

// The cosine of transformers' restarts goes from 1 to -1 within each cycle.
double CosineWithRestartsFactor(double num_cycles, double progress) {
  if (progress >= 1) return 0;
  return std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * std::fmod(num_cycles * progress, 1.0))));
}

double PolynomialFactor(const Schedule& s, int64_t step) {
  if (step >= s.total_steps) return s.lr_end / s.learning_rate;
  const double remaining = 1 - Part(step - s.warmup_steps, s.total_steps - s.warmup_steps);
  return ((s.learning_rate - s.lr_end) * std::pow(remaining, s.power) + s.lr_end) / s.learning_rate;
}

double InverseSqrtFactor(const Schedule& s, int64_t step) {
  constexpr int64_t kDefaultTimescale = 10000;
  const int64_t timescale = s.timescale.value_or(s.warmup_steps > 0 ? s.warmup_steps : kDefaultTimescale);
  return 1.0 / std::sqrt(Part(step + timescale - s.warmup_steps, timescale));
}

double Factor(const Schedule& s, int64_t step) {
  if (s.kind == ScheduleKind::kConstant) return 1.0;
  if (s.kind == ScheduleKind::kWarmupStableDecay) return WarmupStableDecayFactor(s, step);
  if (step < s.warmup_steps) return Part(step, s.warmup_steps);
  const int64_t decay_steps = s.total_steps - s.warmup_steps;
  const double progress = Part(step - s.warmup_steps, decay_steps);
  switch (s.kind) {
    case ScheduleKind::kLinear:
      return std::max(0.0, Part(s.total_steps - step, decay_steps));
    case ScheduleKind::kCosine:
      return std::max(0.0, CosineFall(s.num_cycles, progress));
    case ScheduleKind::kCosineWithMinLr:
      return AboveFloor(CosineFall(s.num_cycles, progress), s.min_lr_rate);
    case ScheduleKind::kCosineWithRestarts:
      return CosineWithRestartsFactor(s.num_cycles, progress);
    case ScheduleKind::kPolynomial:
      return PolynomialFactor(s, step);
    case ScheduleKind::kInverseSqrt:
      return InverseSqrtFactor(s, step);
    default:
      return 1.0;  // constant_with_warmup
  }
}

}  // namespace

double Schedule::At(int64_t step) const {
  TEMPER_CHECK(step >= 0) << "step " << step;
  return learning_rate * Factor(*this, step);
}

Status Schedule::Check() const {
  if (kind == ScheduleKind::kConstant) return OkStatus();
  if (kind == ScheduleKind::kWarmupStableDecay) {
    const int64_t stable = stable_steps.value_or(0);
    if (warmup_steps + stable + decay_steps > total_steps) {
      return InvalidArgument(fmt::format(
          "warmup_stable_decay does not fit: {} warmup + {} stable + {} decay steps are more than the run's {} "
          "steps. Lower lr_scheduler_kwargs.num_decay_steps, or train longer (num_train_epochs, max_steps)",
          warmup_steps, stable, decay_steps, total_steps));
    }
  }
  if (kind == ScheduleKind::kPolynomial && lr_end >= learning_rate) {
    return InvalidArgument(
        fmt::format("lr_scheduler_kwargs.lr_end {} should be below learning_rate {}: polynomial only falls", lr_end,
                    learning_rate));
  }
  if (kind == ScheduleKind::kInverseSqrt && timescale && *timescale < warmup_steps) {
    return InvalidArgument(
        fmt::format("lr_scheduler_kwargs.timescale {} is less than the {} warmup steps: the rate would jump above its "
                    "peak. Raise it, or lower warmup_steps",
                    *timescale, warmup_steps));
  }
  return OkStatus();
}

std::optional<std::string> Schedule::Warning() const {
  if (kind == ScheduleKind::kConstant || warmup_steps <= total_steps) return std::nullopt;
  return fmt::format(
      "{} warmup steps are more than the run's {}: learning_rate is not reached, the last step has {:.3g} of {:.3g}. "
      "Lower warmup_steps, or train longer (num_train_epochs, max_steps)",
      warmup_steps, total_steps, At(std::max<int64_t>(total_steps - 1, 0)), learning_rate);
}

int64_t WarmupSteps(double ratio, int64_t total_steps) {
  return static_cast<int64_t>(std::ceil(static_cast<double>(total_steps) * ratio));
}

}  // namespace temper
