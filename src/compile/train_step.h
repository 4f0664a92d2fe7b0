// The training step of a model: from its forward graph to Programs. This is the pass pipeline, and the one place that
// knows its order: partition, fuse, differentiate, recompute, collectives, optimizer, memory tiers, update in place,
// place.
#pragma once

#include <optional>
#include <vector>

#include "compile/memory/memory_policy.h"
#include "compile/memory/recompute.h"
#include "compile/mesh/partition.h"
#include "compile/mesh/sharding_rules.h"
#include "compile/pipeline/pipeline.h"
#include "compile/step/update.h"
#include "graph/graph.h"
#include "program/program.h"

namespace temper {

// Where a run of several ranks has this one.
struct MeshSpec {
  Mesh mesh;
  int rank = 0;
  ResidualSplit residual = ResidualSplit::kTokens;
  std::vector<ShardingRule> rules;  // those of the user, before the default ones
  // The last so many blocks keep gathered weights from their forward to their backward; others gather them again.
  // Unless given, the last one does where collectives are in the background: between its forward and its backward there
  // is only what stands after the blocks, and its second gather would be issued before that
  // (compile/mesh/collectives.h), so keeping takes no more memory. Of a pipeline: kAllBlocks, or not given.
  std::optional<int> gathered_blocks;
  // Weights are gathered and gradients reduced while neighbouring blocks are computed.
  bool overlap = true;
  PipelineSpec pipeline;      // where the mesh has stages (pp)
  DecisionOptions decisions;  // what is not left to cost
};

struct StepSpec {
  int micro_batches = 1;
  Recompute recompute = Recompute::kNone;  // kAuto: chosen, with what lives where, within the limits of `memory`
  int recompute_blocks = kAllBlocks;       // the first so many only
  UpdateSpec update;
  int threads = 1;
  MeshSpec mesh;
  MemorySpec memory;
};

// Programs "train" (when a value is trainable) and "eval", which share one arena, for rank spec.mesh.rank. `forward`
// has one root, a linear_cross_entropy, and the tokens of all ranks' micro-batch; `eval_forward` is the same model
// without what only training does (dropout). `decisions`, `memory`: filled with what was decided by cost; may be
// nullptr.
Result<std::vector<Program>> CompileTraining(const Graph& forward, const Graph& eval_forward, const StepSpec& spec,
                                             std::vector<Decision>* decisions = nullptr,
                                             ChosenMemory* memory = nullptr);

// Forward-only Programs sharing one arena: evaluation alone, or decoding steps of several lengths.
Result<std::vector<Program>> CompileForward(const std::vector<NamedGraph>& graphs, int threads,
                                            const MemorySpec& memory = {}, ChosenMemory* chosen = nullptr);

}  // namespace temper
