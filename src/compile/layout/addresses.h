// addresses: turns graphs in execution order into Programs with fixed addresses.
//
// Each persistent value (a source and the chain that updates it) gets one buffer, the same in all Programs compiled
// together. The gradients of a step of one micro-batch are among its temporaries (compile/layout/step_layout.h).
// Activations and scratch get offsets by interval packing over their lifetimes within one graph; graphs of one Program
// run one after another and Programs never overlap in time, so all share one region. Values that a pipeline keeps
// between its parts are in slots (compile/layout/layout.h) below that region. All sizes are fixed at compile time.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compile/layout/layout.h"
#include "compile/pipeline/pipeline.h"
#include "graph/graph.h"
#include "program/program.h"

namespace temper {

// A graph and the micro-batches that it runs for: [begin, end). Each run loads its inputs first and stores its outputs
// afterwards, unless the graph is an update.
struct Stage {
  const Graph* graph = nullptr;
  int micro_batch_begin = 0, micro_batch_end = 1;
  const Layout* layout = nullptr;  // of `graph`, if it is known already; not of a step that is one micro-batch
};

// One stage of a pipeline: its parts, called in the order of its schedule. A micro-batch's inputs are loaded before the
// parts that read them, its outputs stored after those that write them.
struct PipelinedStep {
  std::vector<const PipelinedGraph*> graphs;  // per micro-batch; several may share one graph
  StageCalls calls;
};

struct ProgramPlan {
  std::string name;
  std::vector<Stage> stages;
  std::optional<PipelinedStep> pipeline = {};  // runs before the stages
  const Graph* before = nullptr;               // runs once, before everything else
};

// Bytes that the arenas may take.
struct ArenaLimits {
  Bytes device{std::numeric_limits<int64_t>::max()}, host = device;
  bool Hold(const Program& program) const { return program.arena_bytes <= device && program.host.bytes <= host; }
};

// The node at a Program's peak, for display: "backward block 3: linear_dw".
std::string PeakText(const Node& node);

// REQUIRES: all graphs verify. `threads` fixes how reductions are split. Programs that `limits` do not hold come
// without instructions: only their buffers, sizes and peaks are known, and if the first is one, perhaps no others.
// Errors: two plans that disagree about the type or role of a buffer.
Result<std::vector<Program>> AssignAddresses(std::span<const ProgramPlan> plans, int threads,
                                             const ArenaLimits& limits = {});

}  // namespace temper
