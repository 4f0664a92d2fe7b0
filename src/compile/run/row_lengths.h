// RowLengths: the lengths that unpacked rows are padded to. A row of one short document needs no Program of max_seq_len
// tokens: a run without packing has a few more Programs, of shorter rows, and each micro-batch runs in the shortest
// that holds the rows of all ranks. All share the arena of the longest: persistent buffers have one place in all of
// them, gradients too, so that micro-batches of different lengths add to the same sums. Where limits of memory or tiers
// are given, values live where the longest rows' do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "settings/run_config.h"
#include "tensor/mesh.h"

namespace temper {

// Shorter Programs compute as well on rows of few tokens: below this, products no longer fill their tiles.
inline constexpr int64_t kLeastRow = 64;
// Each length more is compiled; an eighth of max_seq_len leaves little to save.
inline constexpr int kMostRowLengths = 4;

struct RowLengths {
  // Tokens, without max_seq_len itself; the longest first.
  std::vector<int64_t> train, eval;
  // All micro-batches of a step have the length of its longest row: a pipeline's overlap, a GPU's are recorded.
  bool per_step = false;
  std::string why_not;  // why unpacked rows keep max_seq_len; may be empty
};

// A half, a quarter and an eighth of `max_seq_len`, in multiples of 32 tokens and of `unit`, at least kLeastRow.
std::vector<int64_t> ShorterRows(int64_t max_seq_len, int64_t unit = 1);

// REQUIRES: `config` is resolved.
RowLengths RowLengthsOf(const RunConfig& config, const Mesh& mesh);

// Makes the ops of a graph of rows of `length` tokens draw as in rows of `longest`: what a token draws does not depend
// on the length that its micro-batch has.
void DrawAsInLongerRows(int64_t length, int64_t longest, Graph* graph);

}  // namespace temper
