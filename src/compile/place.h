// place: turns graphs in execution order into Programs with fixed addresses.
//
// Persistent values (sources, and the chains that update them) get one buffer each, the same in every Program compiled
// together. Activations get offsets by interval packing over their lifetimes within one graph; graphs of one Program
// follow each other, Programs never overlap in time, so all share one region. Nothing is sized at run time.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "program/program.h"

namespace temper {

// A graph and the micro-batches that it is run for: [begin, end). Each is preceded by loading its inputs and followed
// by storing its outputs, except where the graph is an update.
struct Stage {
  const Graph* graph = nullptr;
  int micro_batch_begin = 0, micro_batch_end = 1;
};

struct ProgramPlan {
  std::string name;
  std::vector<Stage> stages;
};

// REQUIRES: all graphs verify. `threads` fixes how reductions are split.
// Errors: two plans that disagree about the type or role of a buffer.
Result<std::vector<Program>> Place(std::span<const ProgramPlan> plans, int threads);

// One interval to pack: alive in steps [begin, end], inclusive.
struct Interval {
  int begin = 0, end = 0;
  Bytes size;
  Bytes offset;  // filled by PackIntervals
};

// Gives offsets such that intervals that share a step share no byte; returns the bytes spanned. Largest first, at the
// lowest offset that fits, which for the nested lifetimes of a training step is within a few percent of the maximum
// live size. O(n^2) in the worst case, near n log n on lifetimes of a step.
Bytes PackIntervals(std::span<Interval> intervals);

}  // namespace temper
