// FewBlocks: a large model by a few of its blocks. A step grows by the same bytes and seconds with every further block
// of a kind, so the figures of the whole model follow from models of few blocks, which compile in milliseconds.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "compile/run/compiled_run.h"
#include "model/model.h"
#include "plan/candidate.h"
#include "plan/forecast.h"

namespace temper {

class FewBlocks {
 public:
  // For a step whose settings name no block by its number. `between`: blocks of each kind between the first and the
  // last: one shows what many add, but where collectives run beside blocks, bytes settle only after some.
  explicit FewBlocks(const Model& model, int64_t between = 1);

  // Whether the model has more blocks than the largest of those few; otherwise it is itself to be compiled.
  bool any() const { return few_ != nullptr; }

  // The figures of a step on a model; nullopt: there is no such step.
  using FiguresOf = std::function<std::optional<StepFigures>(const Model&)>;
  // A line for each kind of blocks.
  struct Lines {
    StepFigures low;
    std::vector<StepFigures> highs;
  };
  // REQUIRES: any(). Compiles with `figures` as many models as there are kinds of blocks, and one more.
  std::optional<Lines> Follow(const FiguresOf& figures) const;
  // The figures of `blocks` of the model's blocks, with each kind's share, and all that is outside of blocks.
  StepFigures Of(const Lines& lines, int64_t blocks) const;

 private:
  // The few blocks, and kMoreBlocks more of one kind.
  struct Sample {
    std::unique_ptr<Model> model;
    int64_t blocks;  // blocks of that kind in the whole model
    int64_t in_few;  // in `few_`
  };
  const int64_t blocks_;
  std::unique_ptr<Model> few_;
  std::vector<Sample> samples_;
};

// The second micro-batch adds to gradients that the first wrote; later ones are like it, except the last, which may sum
// gradients over ranks and update weights.
inline constexpr int64_t kFewMicroBatches = 3;

// The figures of a step of `micro_batches`. The run that was planned has as many, but no more than kFewMicroBatches.
StepFigures FiguresOfStep(const CompiledRun& run, const StepFacts& facts, const Forecast& forecast,
                          int64_t micro_batches);

}  // namespace temper
