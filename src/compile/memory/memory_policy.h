// memory_policy: how a step is made to fit. Given are limits, or tiers for whole classes of values. Left open is what
// is computed again, in chunks of how many rows the loss is taken, and which tier every persistent value lives in.
// Whatever is chosen, results keep every bit; what is taken is what the estimate (compile/estimate/step_estimate.h)
// says is fastest.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compile/memory/memory_spec.h"
#include "compile/memory/recompute.h"
#include "compile/pipeline/pipeline.h"
#include "graph/graph.h"
#include "graph/ops/loss_scratch.h"
#include "program/program.h"

namespace temper {

// The graphs of a step, before UpdateInPlace.
struct StepGraphs {
  // Micro-batches that follow each other: the first makes gradients, those after it add to them, and the last may have
  // them added up between ranks.
  struct MicroBatches {
    PipelinedGraph graph;  // without parts where there is no pipeline
    int count = 1;
  };
  std::vector<MicroBatches> train;  // in order
  PipelinedGraph eval;
  Graph update;  // empty where the last micro-batch has it (compile/step/merge_update.h)
  // Of a stage of a pipeline.
  struct Pipeline {
    StageCalls train, eval;
    Graph gathers;  // of weights that are gathered once per step (compile/mesh/gather_once.h); empty where they are not
  };
  std::optional<Pipeline> pipeline;
};

// One way to make them.
struct StepChoice {
  Recompute recompute = Recompute::kNone;
  int recompute_blocks = kAllBlocks;       // the first so many only
  int64_t loss_chunk = kDefaultLossChunk;  // most rows that linear_cross_entropy takes at a time

  std::string ToString() const;  // "block in the first 6 blocks, loss in chunks of 128 rows"
  bool operator==(const StepChoice&) const = default;
};
using StepMaker = std::function<Result<StepGraphs>(const StepChoice&)>;

// What may be chosen for a model of so many blocks under a limit: what takes more time and less memory comes later.
// `recompute`: of a user; of kAuto the choice is between all modes. `tokens`: of a micro-batch.
std::vector<StepChoice> ChoicesWithin(Recompute recompute, int recompute_blocks, int blocks, int64_t tokens);

// What one choice comes to.
struct StepOption {
  StepChoice choice;
  bool fits = false;
  bool placed = false;       // else it was not tried: computing alone would take longer than what was found
  Seconds step;              // by the estimate; where it does not fit or was not tried, of computing alone
  Bytes device, host, disk;  // reserved, where it fits
  Bytes moved;               // in a step
};

// What was chosen, for people.
struct ChosenMemory {
  StepChoice choice;
  std::string text;  // "weights 1.1 GiB on the device, 3.0 GiB on the host; ..."; "": everything on the device
  Seconds stall;     // of a step, by the estimate: what moves take beyond what computing hides
  Seconds compute;   // of a step
  std::vector<StepOption> options;  // all that were looked at, what was chosen first; empty where there was no choice

  std::string ToString() const;
};
// A table of what was looked at, what was chosen first; empty where there was no choice.
std::vector<std::string> OptionLines(std::span<const StepOption> options);

// Places the step within the limits, made as one of `choices` says. Those that cut the loss more are looked at where no
// other fits, and, of the fastest, where moves are waited for (MemorySpec::loss_chunks_keep_bits). Errors: kOutOfMemory
// where one instruction's operands exceed the device, which names it, or where `placement` allows nothing that fits,
// with the numbers.
Result<std::vector<Program>> FitWithin(const MemorySpec& memory, std::span<const StepChoice> choices,
                                       const StepMaker& make, int threads, ChosenMemory* chosen);

// A forward pass that is evaluated or decodes, by the same rules.
struct NamedGraph {
  std::string name;
  const Graph* graph;
};
Result<std::vector<Program>> FitWithin(const MemorySpec& memory, std::span<const NamedGraph> graphs, int threads,
                                       ChosenMemory* chosen);

}  // namespace temper
