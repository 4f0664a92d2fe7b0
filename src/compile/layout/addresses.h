// place: turns graphs in execution order into Programs with fixed addresses.
//
// Persistent values (sources, and the chains that update them) get one buffer each, the same in every Program compiled
// together. The gradients of a step of one micro-batch lie among its temporaries (compile/layout/step_layout.h).
// Activations and scratch get offsets by interval packing over their lifetimes within one graph; graphs of one Program
// follow each other, Programs never overlap in time, so all share one region. What a pipeline keeps between its parts
// lies in slots (compile/layout/layout.h) below that region. Nothing is sized at run time.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compile/pipeline/pipeline.h"
#include "graph/graph.h"
#include "program/program.h"

namespace temper {

// A graph and the micro-batches that it is run for: [begin, end). Each is preceded by loading its inputs and followed
// by storing its outputs, except where the graph is an update.
struct Stage {
  const Graph* graph = nullptr;
  int micro_batch_begin = 0, micro_batch_end = 1;
};

// One stage of a pipeline: its parts, called in the order of its schedule. A micro-batch's inputs are loaded before the
// parts that read them, its outputs stored after those that write them.
struct PipelinedStep {
  std::vector<const PipelinedGraph*> graphs;  // per micro-batch; those of neighbours may be the same
  StageCalls calls;
};

struct ProgramPlan {
  std::string name;
  std::vector<Stage> stages;
  std::optional<PipelinedStep> pipeline = {};  // runs before the stages
  const Graph* before = nullptr;               // runs once, before all others
};

// REQUIRES: all graphs verify. `threads` fixes how reductions are split.
// Errors: two plans that disagree about the type or role of a buffer.
Result<std::vector<Program>> AssignAddresses(std::span<const ProgramPlan> plans, int threads);

}  // namespace temper
