// pipeline: cuts the step of one micro-batch between the stages of a pipeline.
//
// A *chunk* is a run of blocks; the first has what stands before the blocks, the last what stands after them. A stage
// owns one chunk, or several (PipelineSchedule::StageOf). Of each the cut makes *parts*, which a schedule
// (pipeline_calls.h) calls one by one:
//
//   receive forward    recv nodes: what the chunk before has made
//   forward            its nodes, each value that the next chunk needs sent as soon as it is made
//   receive backward   recv nodes: gradients from the chunk after
//   backward           the same; what only gives gradients of weights stands in a part of its own where asked for
//   weights
//
// What depends on inputs alone (rope tables) is not sent but made by every chunk that uses it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compile/pipeline/calls.h"
#include "graph/graph.h"

namespace temper {

struct PipelineSpec {
  PipelineKind kind = PipelineKind::kOneForwardOneBackward;
  int chunks_per_stage = 1;      // interleaved: 2 or more
  std::vector<int> layers = {};  // blocks of each chunk; empty: by cost (pipeline_balance.h)
};

struct PipelineCut {
  int stage = 0, stages = 1;
  int chunks_per_stage = 1;
  std::vector<int> chunk_of_block;
  bool split_weights = false;  // gradients of weights are a part of their own

  int chunks() const { return stages * chunks_per_stage; }
  int ChunkOf(int block) const;
  int StageOf(int chunk) const { return chunk % stages; }
};

// The stages that have each weight and adapter, ascending.
std::map<std::string, std::vector<int>> StagesOfWeights(const Graph& graph, const PipelineCut& cut);

// A weight that several stages use (tied embeddings) becomes one for each, of the same name: each stage differentiates
// its own uses. `holders` is told the stages of each such weight, ascending. REQUIRES: a graph before Differentiate.
Graph SplitSharedWeights(const Graph& graph, const PipelineCut& cut, std::map<std::string, std::vector<int>>* holders);

struct PipelinePart {
  PartKind kind = PartKind::kForward;
  int chunk = 0;
  size_t begin = 0, end = 0;  // nodes; may be empty
};

// One stage's share, a graph like any other: its parts stand in an order in which one micro-batch could run through.
struct PipelinedGraph {
  Graph graph;
  std::vector<PipelinePart> parts;
};

// Where a stage talks to another one, the two compute the same numbers for it, so all stages must cut the same graph.
// Errors: a value that a chunk needs from one that is not its neighbour, named.
Result<PipelinedGraph> CutPipeline(const Graph& graph, const PipelineCut& cut);

}  // namespace temper
