// Scratch of linear_cross_entropy: its workspace rule and the layout that its kernels use.
#pragma once

#include <algorithm>

#include "graph/ops/matrix_product.h"
#include "graph/rule.h"

namespace temper {

// Offsets into the workspace, 64-byte aligned.
struct LossScratch {
  int64_t chunk = 0;  // most rows at a time
  Bytes rows;         // i32 [T]: the supervised tokens
  Bytes gathered[2];  // [chunk, columns of x] of each pair
  Bytes logits;       // [chunk, V] in x's dtype
  Bytes exps;         // f32 [V] per thread, exp_bytes apart
  Bytes exp_bytes;
  Bytes products;  // product_bytes: scratch of the largest matrix product
  Bytes product_bytes;
  Bytes bytes;  // all
};

inline constexpr int64_t kDefaultLossChunk = 512;  // rows; 64 rows starve the matrix products and cost 1.8x

inline constexpr int64_t kLossPiece = 2048;  // words whose exponentials are taken at a time

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
  const int64_t pieces = (V + kLossPiece - 1) / kLossPiece;
  s.exp_bytes = AlignUp(Bytes{pieces * (kLossPiece + 1) * 4}, 64);
  s.exps = take(s.exp_bytes.v * threads);
  for (size_t p = 0; p < pairs; ++p) {
    const int64_t I = in[3 * p].shape[1];
    s.product_bytes = std::max({s.product_bytes, MatrixProductScratch(s.chunk, V, I, in[0].dtype, true, threads),
                                MatrixProductScratch(s.chunk, I, V, in[0].dtype, true, threads),
                                MatrixProductScratch(V, I, s.chunk, DType::kF32, false, threads)});
  }
  s.products = take(s.product_bytes.v);
  return s;
}

}  // namespace temper
