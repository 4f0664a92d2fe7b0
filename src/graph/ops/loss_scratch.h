// Scratch of linear_cross_entropy and its relatives: their workspace rule and the layout that their kernels use.
#pragma once

#include <algorithm>

#include "graph/ops/loss_operands.h"
#include "graph/ops/matrix_product.h"
#include "graph/rule.h"

namespace temper {

// Offsets into the workspace, 64-byte aligned.
struct LossScratch {
  int64_t chunk = 0;                       // most rows at a time
  Bytes rows;                              // i32 [T]: the supervised tokens
  Bytes gathered[2];                       // [chunk, columns of x] of each pair
  Bytes logits;                            // [chunk, V] in x's dtype
  Bytes teacher_gathered, teacher_logits;  // of linear_distillation: [chunk, E] and [chunk, V] in x's dtype
  Bytes exps;                              // f32 [V] per thread, exp_bytes apart; of a row, within one step only
  Bytes exp_bytes;
  Bytes products;  // product_bytes: scratch of the largest matrix product
  Bytes product_bytes;
  // With a split vocabulary: f32 [n, LossStatistics::count()] of a chunk's n rows, and the same from each rank of the
  // group, one after the other.
  Bytes statistics, all_statistics;
  Bytes numbers;  // of a quantised w that is dequantised first: [V, columns of x] in x's dtype
  Bytes bytes;    // all
};

// What ranks that share a vocabulary exchange per row: the largest of their logits, the sum of exp(logit - largest),
// the target's logit, -infinity from ranks that do not have it, and with label smoothing the sum of their logits. One
// AllGather per chunk.
enum LossStatistic : int { kLossLargest, kLossSum, kLossTarget, kLossLogits };
// Where it is asked whether targets are the largest logits, two more at the end: the largest logit before a cap, which
// may make several equal, and the first word that has it, as a number (exact: kMostRankedWords); -1: none.
//
// Device code calls constexpr functions.
struct LossStatistics {
  bool smooth = false, top = false;
  constexpr int64_t count() const { return kLossLogits + smooth + 2 * top; }
  constexpr int64_t top_logit() const { return kLossLogits + smooth; }
  constexpr int64_t top_word() const { return top_logit() + 1; }
};
inline LossStatistics LossStatisticsOf(const Attributes& a) {
  return {.smooth = a.DoubleOr("smoothing", 0) > 0, .top = a.Flag("correct")};
}
inline constexpr int64_t kMostRankedWords = int64_t{1} << 24;  // f32 has all whole numbers up to it

// Rows. 64 starve the matrix products and cost 1.8x; fewer would save little of the scratch.
inline constexpr int64_t kDefaultLossChunk = 512, kLeastLossChunk = 64;

inline constexpr int64_t kLossPiece = 2048;  // words whose exponentials are computed at a time

// Inputs: x_TI, w_VI, target_T, then x2, w2 (attribute pair2).
inline LossScratch LossScratchOf(const Types& in, const Attributes& a, int threads) {
  const int64_t T = in[0].shape[0], V = in[1].shape[0], size = SizeOf(in[0].dtype);
  const size_t pairs = a.Flag("pair2") ? 2 : 1;
  LossScratch s;
  s.chunk = std::max<int64_t>(1, std::min(a.IntOr("chunk", kDefaultLossChunk), T));
  const auto take = [&s](int64_t bytes) {
    const Bytes at = s.bytes;
    s.bytes = AlignUp(s.bytes + Bytes{bytes}, 64);
    return at;
  };
  s.rows = take(T * 4);
  for (size_t p = 0; p < pairs; ++p) s.gathered[p] = take(s.chunk * in[3 * p].shape[1] * size);
  s.logits = take(s.chunk * V * size);
  const LossOperands operands(a);
  if (operands.teacher_x >= 0) {
    const int64_t E = in[static_cast<size_t>(operands.teacher_x)].shape[1];
    s.teacher_gathered = take(s.chunk * E * size);
    s.teacher_logits = take(s.chunk * V * size);
    s.product_bytes = MatrixProductScratch(s.chunk, V, E, in[0].dtype, true, threads);
  } else if (const int64_t ranks = a.IntOr("ranks", 0); ranks > 0) {
    const int64_t statistics = s.chunk * LossStatisticsOf(a).count() * 4;
    s.statistics = take(statistics);
    s.all_statistics = take(statistics * ranks);
  } else {
    const int64_t pieces = (V + kLossPiece - 1) / kLossPiece;
    s.exp_bytes = AlignUp(Bytes{pieces * (kLossPiece + 1) * 4}, 64);
    s.exps = take(s.exp_bytes.v * threads);
  }
  for (size_t p = 0; p < pairs; ++p) {
    const int64_t I = in[3 * p].shape[1];
    s.product_bytes = std::max(
        {s.product_bytes, MatrixProductScratch(s.chunk, V, I, in[0].dtype, true, threads, in[3 * p + 1].packed()),
         MatrixProductScratch(s.chunk, I, V, in[0].dtype, true, threads, p == 0 && a.Flag("w_of_d_x")),
         MatrixProductScratch(V, I, s.chunk, DType::kF32, false, threads)});
  }
  s.products = take(s.product_bytes.v);
  if (a.Flag("dequantise")) s.numbers = take(in[1].computed().bytes().v);
  return s;
}

// Chunks that `supervised` rows are cut into, and where chunk `i` begins. Of nearly equal size: a short last one would
// cost almost as much as a long one. Ranks that share a vocabulary see the same rows, so they cut them alike. Chunks of
// whole units begin at units: bf16 products take rows in pairs, matrix units take 32 at a time, and this grouping must
// not depend on the chunk.
inline int64_t NumLossChunks(const LossScratch& s, int64_t supervised) {
  return (supervised + s.chunk - 1) / s.chunk;
}
inline int64_t LossChunkBegin(const LossScratch& s, int64_t supervised, int64_t i) {
  const int64_t chunks = NumLossChunks(s, supervised), unit = s.chunk % 32 == 0 ? 32 : s.chunk % 2 == 0 ? 2 : 1;
  const int64_t units = (supervised + unit - 1) / unit;
  return chunks == 0 ? 0 : std::min(supervised, units * i / chunks * unit);
}

}  // namespace temper
