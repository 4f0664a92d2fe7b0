// FewBlocks: a large model by a few of its blocks. A step grows by the same bytes and seconds with every further block
// of a kind, so the figures of the whole model follow from models of few blocks, which compile in milliseconds.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "compile/run/step_figures.h"
#include "model/model.h"

namespace temper {

// Of each kind between the first and the last, where collectives run beside blocks: full fine-tuning of 405 billion
// parameters over 8 GPUs is extrapolated within 0.5 % from 6, and 10 % too large from one.
inline constexpr int64_t kBetweenCollectives = 6;

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

}  // namespace temper
