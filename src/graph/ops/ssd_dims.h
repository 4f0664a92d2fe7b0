// Sizes of ssd and the scratch of its kernels, as data: included by files of an instruction set.
#pragma once

#include <cstdint>

#include "graph/ops/state_chunk.h"

namespace temper {

// Heads that are computed together, at most: they share products of b and c. Heads of a group are cut into blocks of
// so many whatever the number of threads, and the gradients of b and c are added up over blocks in their order.
inline constexpr int64_t kSsdHeads = 8;

struct SsdDims {
  int64_t tokens = 0, row = 0;           // row: of a packed row, which no document crosses
  int64_t groups = 0, heads = 0;         // each group's b and c serve group() heads, one after another
  int64_t state_dim = 0, value_dim = 0;  // of b and c; of a head's x

  int64_t group() const { return heads / groups; }
  // Of the heads of a group.
  int64_t blocks() const { return (group() + kSsdHeads - 1) / kSsdHeads; }
  // Threads that have work: a block of heads of a row is one's.
  int64_t workers(int64_t threads) const {
    const int64_t items = tokens / row * groups * blocks();
    return threads < items ? threads : items;
  }
  // That a document can have.
  int64_t chunks() const { return (row + kStateChunk - 1) / kStateChunk; }
  // Gradients of b, then of c, of each block, in floats.
  int64_t partial_floats() const { return 2 * blocks() * tokens * groups * state_dim; }
};

// A thread's scratch: offsets in floats, of matrices whose rows are as wide as their last dim. C: kStateChunk, N and P:
// elements of b and of x, J: heads of a block.
struct SsdScratch {
  int64_t b_CN, c_CN, b_NC;
  int64_t scaled_CN;  // rows of b or c, times a decay
  int64_t cb_CC;      // products of rows of c and b
  int64_t decay_CC;   // from token j to token i >= j; 0 above
  int64_t read_CC;    // what a token reads of others
  int64_t u_CP;       // dt x: what is written to the state
  int64_t y_CP;
  int64_t gates_C;  // kGates vectors
  int64_t state_JNP;
  // Backward only.
  int64_t d_b_CN, d_c_CN, d_y_CP, d_u_CP, u_PC;
  int64_t d_read_CC, d_cb_CC;
  int64_t d_state_JNP, state_PN, d_state_PN;
  int64_t states_KJNP;  // at each chunk's begin
  int64_t floats;

  static constexpr int64_t kGates = 6;
};

}  // namespace temper
