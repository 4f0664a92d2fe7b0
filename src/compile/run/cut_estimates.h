// Estimates of a step whose batch is cut in some way (compile/run/batch_cut.h): compiled whole for the machine at hand,
// or extrapolated from few blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>

#include "base/units.h"
#include "compile/run/batch_cut.h"
#include "compile/run/compile_run.h"
#include "compile/run/step_figures.h"

namespace temper {

// CutEstimates::fixed of such a run.
bool BalancesExperts(const Model& model, const RunConfig& config);

// For the machine at hand: the first rank of each stage is compiled for it, and timed by its rates. These are typical
// ones where everything fits in memory; else `ask`, if it is given, may give others. The same on all ranks. All
// arguments must outlive the result.
CutEstimates CutOnMachine(const RankMemory& available, const Model& model, const RunConfig& config, int ranks,
                          const AskRates& ask);

// A step on a device that is large enough for it, and the part of it that the device at hand has room for.
struct RoomyStep {
  StepFigures figures;
  Bytes room;

  Bytes excess() const { return std::max(Bytes{static_cast<int64_t>(figures.bytes)} - room, Bytes{}); }
};
// What `quick` is made of.
struct QuickCut {
  // A step of this model with these settings, extrapolated to this many micro-batches (FiguresOfStep); nullopt: there
  // is none.
  std::function<std::optional<RoomyStep>(const Model&, const RunConfig&, int64_t micro_batches)> step;
  // More seconds of a step of so many micro-batches with `excess` bytes in farther tiers; nullopt: they have no room.
  std::function<std::optional<Seconds>(const StepFigures&, Bytes excess, int64_t micro_batches)> spill;
  // Called once, if it is there: whether other rates are to be used from now on. `needed`: the first step that
  // was estimated does not fit as it is.
  using AskRates = std::function<Result<bool>(bool needed)>;
  AskRates rates = nullptr;
};
// nullptr: the run is one whose figures do not follow from few blocks. `model` must outlive it.
EstimateCut CutOfFewBlocks(const Model& model, const RunConfig& config, int ranks, QuickCut with);

}  // namespace temper
