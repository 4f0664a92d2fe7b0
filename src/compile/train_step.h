// The training step of a model: from its forward graph to Programs. This is the pass
// pipeline, and the only place that knows its order: partition, fuse, differentiate,
// recompute, rings, gradient sync, join adapters, collectives, optimizer, memory tiers, update in place, addresses.
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

// The mesh of a run, and this rank's place in it.
struct MeshSpec {
  Mesh mesh;
  int rank = 0;
  ResidualSplit residual = ResidualSplit::kTokens;
  std::vector<ShardingRule> rules;  // the user's rules, which precede the defaults
  // The last `gathered_blocks` blocks keep gathered weights from forward to backward; others gather them again.
  // Default: 1 if collectives run in the background, else 0. Between the last block's forward and backward there are
  // only the nodes after the blocks, and its second gather would be issued before these (compile/mesh/collectives.h),
  // so keeping takes no more memory. In a pipeline: kAllBlocks, or not given.
  std::optional<int> gathered_blocks;
  // Gather weights and reduce gradients while neighbouring blocks are computed.
  bool overlap = true;
  PipelineSpec pipeline;      // if the mesh has stages (pp)
  DecisionOptions decisions;  // decisions not made by cost
};

struct StepSpec {
  int micro_batches = 1;
  Recompute recompute = Recompute::kNone;  // kAuto: chosen together with the tiers, within the limits of `memory`
  int recompute_blocks = kAllBlocks;       // only the first `recompute_blocks`
  UpdateSpec update;
  int threads = 1;
  MeshSpec mesh;
  MemorySpec memory;
  // Whether products take a second pair of operands, so that adapters are part of them (compile/step/join_adapters.h):
  // on CPUs.
  bool joins_adapters = false;
};

// Programs "train" (when a value is trainable) and "eval", which share one arena, for rank spec.mesh.rank. `forward`
// has one root, a linear_cross_entropy, and the tokens of all ranks' micro-batch; `eval_forward` is the same model
// without training-only ops (dropout). `decisions`, `memory`: receive the choices made; may be nullptr.
Result<std::vector<Program>> CompileTraining(const Graph& forward, const Graph& eval_forward, const StepSpec& spec,
                                             std::vector<Decision>* decisions = nullptr,
                                             ChosenMemory* memory = nullptr);

// Forward-only Programs sharing one arena: evaluation alone, or decoding steps of several lengths. `joins_adapters`: as
// in StepSpec.
Result<std::vector<Program>> CompileForward(const std::vector<NamedGraph>& graphs, int threads, bool joins_adapters,
                                            const MemorySpec& memory = {}, ChosenMemory* chosen = nullptr);

}  // namespace temper
