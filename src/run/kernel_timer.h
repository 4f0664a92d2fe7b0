// KernelTimer: measures how long one kernel takes while `ranks` of them run at once, each with its share of the cores,
// as for a rank beside others. For calibration; not for the step path.
#pragma once

#include <functional>

#include "compile/rates/device_rates.h"
#include "compile/residency/residency.h"
#include "device/kernel.h"

namespace temper {

// An instruction to be timed.
struct TimedCase {
  Op op;
  Types inputs;
  Attributes attributes;
};

class KernelTimer {
 public:
  // Holds memory for the largest case that Time will be given, once per rank.
  KernelTimer(int ranks, int threads) : ranks_(ranks), threads_(threads) {}

  // The shortest of several batches within about `budget` in total (other work on the machine only adds time), at least
  // three runs. 0 if this backend cannot run it. `memory`: runs take turns with up to 64 copies of the operands that
  // have so many bytes together, for operands that a step finds in no cache; smaller ones are not copied.
  Seconds Time(const TimedCase& c, Seconds budget, Bytes memory = {}) const;

  // How much longer the kernel takes while another thread of each rank repeats `move`,
  // and how much longer the move takes: medians of a few rounds, in which both run
  // alone for `budget` and then together. `alone`: seconds of a move on its own.
  struct Beside {
    Contention contention;
    Seconds alone;
  };
  Beside TimeBeside(const TimedCase& c, const std::function<void(int rank)>& move, Seconds budget) const;

 private:
  const int ranks_, threads_;
};

// Cost::flops and the bytes read and written, by the op's rule.
Cost CostOf(const TimedCase& c);

}  // namespace temper
