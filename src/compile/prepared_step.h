// PreparedStep: the graphs of one rank's step, once all that does not depend on memory is decided: how weights are
// sharded, what tensor ranks exchange, when gradients are summed over ranks, how a pipeline is cut. It makes the graphs
// of any StepChoice; the search for one (compile/memory/memory_policy.h) works on these.
#pragma once

#include <span>
#include <vector>

#include "compile/memory/memory_policy.h"
#include "compile/mesh/decisions.h"
#include "compile/mesh/grad_sync.h"
#include "compile/mesh/sharding_rules.h"
#include "compile/step_spec.h"

namespace temper {

class PreparedStep {
 public:
  // For rank spec.mesh.rank; spec.memory does not matter. REQUIRES: the first of `graphs` trains, as CompileGraphs;
  // they outlive this.
  static Result<PreparedStep> Of(std::span<const RunGraph> graphs, const StepSpec& spec);

  // The graphs compiled in that way, with those of shorter rows or without. Errors: a mesh that a pass does not
  // support.
  Result<StepGraphs> Make(const StepChoice& choice, bool shorter = true) const;
  bool has_shorter() const { return of_.back().shorter; }

  // The choices within `memory`, ordered from fast to small; one if it sets no limits. Errors: casts that `memory`
  // rules out, or that this run has no use for.
  Result<std::vector<StepChoice>> Choices(const MemorySpec& memory) const;

  const StepSpec& spec() const { return spec_; }
  const std::vector<Decision>& decisions() const { return decisions_; }  // made by cost
  // Ranks that gather weights together recompute the same nodes and use the same chunks of the loss: all ranks of a
  // stage do what is chosen for its first one.
  int first_of_stage() const;

 private:
  explicit PreparedStep(const StepSpec& spec) : spec_(spec) {}
  bool pipelined() const { return spec_.mesh.mesh.size(Axis::kPp) > 1; }
  // The first `count` graphs: without a pipeline; for a stage of one.
  Result<StepGraphs> Whole(const StepSpec& spec, bool merges, size_t count) const;
  Result<StepGraphs> OfStage(const StepSpec& spec, size_t count) const;

  StepSpec spec_;
  std::vector<RunGraph> of_;   // as given
  std::vector<Graph> graphs_;  // this rank's parts; fused, but for those that train in a pipeline
  ShardedWeights sharded_;
  GradSync sync_ = GradSync::kMicroBatch;
  std::vector<Decision> decisions_;
};

// The graphs of a run that trains none, on one rank.
StepGraphs ForwardStep(std::span<const RunGraph> graphs, const StepSpec& spec);

}  // namespace temper
