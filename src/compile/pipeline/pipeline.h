// pipeline: cuts the step of one micro-batch between the stages of a pipeline.
//
// A *chunk* is a run of blocks; the first chunk includes the nodes before the blocks, the last those after them. A
// stage owns one or several chunks (PipelineSchedule::StageOf). The cut divides each chunk into *parts*, which a
// schedule (compile/pipeline/calls.h) calls one by one:
//
//   receive forward    recv nodes: values from the chunk before
//   forward            its nodes, each value that the next chunk needs sent as soon as it is made
//   receive backward   recv nodes: gradients from the chunk after
//   backward           the same; nodes that only make gradients of weights can be a separate part
//   weights
//
// Values that depend only on inputs (rope tables) are not sent; every chunk that uses them computes them.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compile/pipeline/calls.h"
#include "graph/graph.h"

namespace temper {

struct PipelineSpec {
  PipelineKind kind = PipelineKind::kOneForwardOneBackward;
  int chunks_per_stage = 1;      // interleaved: 2 or more
  std::vector<int> layers = {};  // blocks of each chunk; empty: by cost (compile/pipeline/balance.h)
};

struct PipelineCut {
  int stage = 0, stages = 1;
  int chunks_per_stage = 1;
  std::vector<int> chunk_of_block;
  bool split_weights = false;  // gradients of weights are a separate part

  int chunks() const { return stages * chunks_per_stage; }
  int ChunkOf(int block) const;
  int StageOf(int chunk) const { return chunk % stages; }
};

// The stages that use each weight and adapter, ascending.
std::map<std::string, std::vector<int>> StagesOfWeights(const Graph& graph, const PipelineCut& cut);

// Gives each stage that uses a shared weight (tied embeddings) its own source of
// the same name: each stage differentiates its own uses. `holders` gets the stages
// of each shared weight, ascending. REQUIRES: a graph before Differentiate.
Graph SplitSharedWeights(const Graph& graph, const PipelineCut& cut, std::map<std::string, std::vector<int>>* holders);

struct PipelinePart {
  PartKind kind = PartKind::kForward;
  int chunk = 0;
  size_t begin = 0, end = 0;  // nodes; may be empty
};

// For a pass that builds a graph anew: calls add(begin, end) for the nodes of each part in order, or for all `nodes` if
// there are no parts. `add` returns how many nodes the new graph then has, of which the part gets its new range.
template <class Add>
void RewriteParts(size_t nodes, const Add& add, std::vector<PipelinePart>* parts) {
  if (parts->empty()) add(0, nodes);
  size_t end = 0;
  for (PipelinePart& part : *parts) {
    const size_t begin = std::exchange(end, add(part.begin, part.end));
    part.begin = begin;
    part.end = end;
  }
}

// One stage's share, an ordinary graph: its parts are in an order in which one micro-batch could run.
struct PipelinedGraph {
  Graph graph;
  std::vector<PipelinePart> parts;
};

// The two stages of a transfer derive its tag from the graph, so all stages must cut the same graph. Errors: a value
// that a chunk needs from a chunk that is not its neighbour; the message names it.
Result<PipelinedGraph> CutPipeline(const Graph& graph, const PipelineCut& cut);

}  // namespace temper
