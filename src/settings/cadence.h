// When a run logs, evaluates and saves, between its steps; all by the names and meanings of transformers.
#pragma once

#include <cstdint>

namespace temper {

// kAuto: of evaluation, by steps where eval_steps is set, else as checkpoints come.
enum class CadenceStrategy : uint8_t { kSteps, kEpoch, kNo, kAuto };

struct Cadence {
  int64_t steps = 0;  // 0: never
  bool by_epoch = false;

  // `epoch_ends`: with this step.
  bool Due(int64_t step, bool epoch_ends) const { return by_epoch ? epoch_ends : steps > 0 && step % steps == 0; }
  // How often it is due in the steps [from, to]. Epochs of other lengths than `steps_per_epoch` are counted as such.
  int64_t Times(int64_t from, int64_t to, int64_t steps_per_epoch) const;
};

// The steps between two events: `steps`, or if that is below 1 this part of `total_steps`, rounded up.
int64_t StepsBetween(double steps, int64_t total_steps);

}  // namespace temper
