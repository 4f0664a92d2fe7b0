// StepFigures: what a step takes, as far as it grows by the same amount with every further block and micro-batch. So
// the figures of a large model follow from those of small ones (compile/run/few_blocks.h).
#pragma once

#include <span>

#include "base/units.h"
#include "compile/estimate/step_estimate.h"
#include "compile/rates/link_rates.h"
#include "program/program.h"

namespace temper {

struct StepFigures {
  double bytes = 0, seconds = 0, flops_per_token = 0;    // flops_per_token: those that the model requires
  double activations = 0, gradients = 0, optimizer = 0;  // parts of `bytes` at the memory peak
};
// Extrapolates from `low`. Each kind of blocks has `high`, the figures with `more` additional blocks of that kind, and
// `blocks`, the number of blocks to add to those of `low`; negative: to remove.
struct MoreOfKind {
  StepFigures high;
  double blocks = 0;
};
StepFigures Extrapolated(const StepFigures& low, int64_t more, std::span<const MoreOfKind> kinds);

// Figures of a 1F1B pipeline of `stages` equal stages with `micro_batches`, from those of one stage with its blocks and
// everything outside of blocks. The bubble is the wait for the first micro-batch; the first stage keeps the activations
// of one micro-batch per stage.
StepFigures InStages(const StepFigures& stage, int64_t stages, int64_t micro_batches);

// Additional seconds of a step if `excess` bytes live in the host's memory, but for those `on_disk`, and no move is
// hidden by computing: an upper bound. Optimizer states move to the host first (they are updated there: for 12 bytes of
// states, 4 bytes of gradient leave and 2 bytes of weight return), then weights, which are fetched for the forward and
// the backward of each micro-batch.
Seconds SecondsOfSpill(const StepFigures& figures, Bytes excess, Bytes on_disk, int64_t micro_batches,
                       const LinkRates& links, double host_bandwidth);

// The second micro-batch adds to gradients that the first wrote; later ones are like it, except the last, which may sum
// gradients over ranks and update weights.
inline constexpr int64_t kFewMicroBatches = 3;

// The figures of a step of `micro_batches`. `train`, whose estimate is `estimate`, has as many, but no more than
// kFewMicroBatches. `bytes`: what it takes.
StepFigures FiguresOfStep(const Program& train, const StepEstimate& estimate, Bytes bytes, double flops_per_token,
                          int64_t micro_batches);

}  // namespace temper
