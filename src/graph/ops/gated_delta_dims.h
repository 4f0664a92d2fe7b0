// Sizes of gated_delta and the scratch of its kernels, as data: included by files of an instruction set.
#pragma once

#include <cstdint>

#include "graph/ops/state_chunk.h"

namespace temper {

// Under the root of a norm of q or k: x / sqrt(sum x^2 + eps).
inline constexpr double kDeltaNormEps = 1e-6;

struct DeltaDims {
  int64_t tokens = 0, row = 0;             // row: of a packed row, which no document crosses
  int64_t key_heads = 0, value_heads = 0;  // each key head serves group() value heads, one after another
  int64_t key_dim = 0, value_dim = 0;      // of a head

  int64_t group() const { return value_heads / key_heads; }
  // Threads that have work: a key head of a row is one's.
  int64_t workers(int64_t threads) const {
    const int64_t items = tokens / row * key_heads;
    return threads < items ? threads : items;
  }
  // That a document can have.
  int64_t chunks() const { return (row + kStateChunk - 1) / kStateChunk; }
};

// A thread's scratch: offsets in floats, of matrices whose rows are as wide as their last dim. C: kStateChunk, D and F:
// elements of a key and of a value.
struct DeltaScratch {
  int64_t q_CD, k_CD, k_DC;    // normed; k also transposed
  int64_t decayed_CD;          // rows of k or q, times a decay
  int64_t kk_CC, qk_CC;        // products of normed rows
  int64_t decay_CC;            // from token j to token i >= j; 0 above
  int64_t system_CC, read_CC;  // minus the triangular system; what a token's query reads of others
  int64_t u_CF, y_CF;          // what is written to the state; what the state holds for keys
  int64_t gates_C;             // kGates vectors
  int64_t state_GDF;           // of each value head of the group
  // Backward only.
  int64_t d_q_CD, d_k_CD, d_o_CF, d_u_CF, u_FC;
  int64_t d_read_CC, d_kk_CC, d_qk_CC;
  int64_t d_state_GDF, state_FD, d_state_FD;
  int64_t states_NGDF;  // at each chunk's begin
  int64_t floats;

  static constexpr int64_t kGates = 12;
};

}  // namespace temper
