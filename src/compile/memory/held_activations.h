// HeldActivations: bytes that a step certainly holds between its forward and its backward pass. If they exceed the
// memory, a choice of recomputed blocks does not fit, and need not be compiled to know that.
#pragma once

#include <vector>

#include "compile/memory/step_graphs.h"

namespace temper {

class HeldActivations {
 public:
  // `step` recomputes nothing. For a stage of a pipeline nothing is known: its micro-batches overlap.
  explicit HeldActivations(const StepGraphs& step);

  // The least bytes that are alive when the backward pass begins, on all tiers together, if the first `blocks` blocks
  // are recomputed whole: what the other blocks make and the backward reads. Any size of the loss's chunks is the same.
  Bytes Least(int blocks) const;

 private:
  std::vector<Bytes> from_;  // per block: of it and all behind it
};

}  // namespace temper
