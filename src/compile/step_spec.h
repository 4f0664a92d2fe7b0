// StepSpec: how the graphs of a run are compiled, and RunGraph: what they are.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compile/memory/memory_spec.h"
#include "compile/memory/recompute.h"
#include "compile/mesh/partition.h"
#include "compile/mesh/sharding_rules.h"
#include "compile/pipeline/pipeline.h"
#include "compile/step/update.h"
#include "graph/graph.h"

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

// A forward graph to compile, for the tokens of all ranks' micro-batch.
struct RunGraph {
  std::string name;      // of its Program (program/program_names.h)
  const Graph* forward;  // REQUIRES: outlives CompileGraphs
  bool trains = false;   // its Program is a step: micro-batches, backward and update; its first root is a loss
  bool shorter = false;  // it does what an earlier one does, with shorter rows, and is placed as that one is
};

}  // namespace temper
