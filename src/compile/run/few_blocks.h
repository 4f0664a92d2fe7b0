// FewBlocks: a large model by a few of its blocks. A step grows by the same bytes and seconds with every further block
// of a kind, so the figures of the whole model follow from models of few blocks, which compile in milliseconds.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
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
  // A line for each kind of blocks, but for those of a single block, which is among the few.
  struct Lines {
    StepFigures low;
    std::vector<StepFigures> highs;
  };
  // REQUIRES: any(). Compiles with `figures` as many models as there are lines, and one more; or that one alone, if it
  // `promises` nothing: then nullopt.
  std::optional<Lines> Follow(const FiguresOf& figures,
                              const std::function<bool(const StepFigures& low)>& promises = nullptr) const;
  // The figures of `blocks` of the model's blocks, with each kind's share, and all that is outside of blocks. Kinds of
  // a single block are there in any case.
  StepFigures Of(const Lines& lines, int64_t blocks) const;

  // One block of each kind, in the model's order. CountOf: how many blocks of its block `kind`'s kind Of counts.
  // REQUIRES: any().
  const Model& one_of_each() const { return *one_of_each_; }
  double CountOf(size_t kind, int64_t blocks) const;
  // Whether there are as many of each kind as the few blocks of Lines::low have: stages may have fewer.
  bool HasAllOf(int64_t blocks) const;
  // What the blocks that Lines::low lacks add to it, if a block of kind k adds of_each[k].
  double AddedTo(std::span<const double> of_each, int64_t blocks) const;

 private:
  // The few blocks, and kMoreBlocks more of one kind.
  struct Sample {
    std::unique_ptr<Model> model;
    int64_t blocks;  // blocks of that kind in the whole model
    int64_t in_few;  // in `few_`
  };
  struct Kind {
    int64_t blocks;  // of the model
    int64_t in_few;
    bool is_single;
  };
  // Of `blocks` of the model's blocks, those of a kind that has `of_kind` in the model.
  double Share(int64_t of_kind, int64_t blocks) const;

  const int64_t blocks_;
  int64_t singles_ = 0;  // blocks that are single in their kind, and neither the first nor the last
  std::unique_ptr<Model> few_, one_of_each_;
  std::vector<Sample> samples_;
  std::vector<Kind> kinds_;
};

}  // namespace temper
