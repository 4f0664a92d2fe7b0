// Scratch of attention where a vendor's library attends within packed documents
// (backend/gpu/attention/packed_attention.h): a part of the workspace rules of attention and its backward, so that a
// run planned without a GPU holds on one.
//
// Rows are taken in pieces: documents do not cross rows, and what a pass needs grows with its tokens. A piece of 4096
// tokens is 512 blocks of 128 queries for 16 heads: more than the 148 multiprocessors of a B200 run at once.
#pragma once

#include <algorithm>

#include "graph/rule.h"

namespace temper {

inline constexpr int64_t kPackedPieceTokens = 4096;  // at least, if there are so many
inline constexpr int64_t kPackedMostDocuments = 64;  // per piece
// What cuDNN 9.19 and 9.26 request on B200 beside the tensors named below, as measured over shapes: below 17.5 KB up to
// 64 documents forward, and 2.5 KB and 1 KB per document backward. A pass that requests more is not used.
inline constexpr Bytes kPackedWorkspace = KiB(128);

// Offsets into the workspace, 64-byte aligned.
struct PackedScratch {
  int64_t piece_tokens = 0, pieces = 0;  // 0: a library does not take such operands
  Bytes tables, table;                   // of each piece four tables, `table` bytes apart
  Bytes delta;                           // backward: f32 [piece_tokens, heads]
  Bytes d_k_by_head, d_v_by_head;        // backward, where heads share keys: 4 bytes x [piece_tokens, heads, head_dim]
  Bytes workspace;
  Bytes bytes;
};

inline PackedScratch PackedScratchOf(const TensorType& q, const Attributes& a, bool backward) {
  PackedScratch s;
  const int64_t tokens = q.shape[0], heads = a.Int("heads"), head_dim = q.shape[1] / heads;
  const int64_t row = std::min(tokens, a.IntOr("row", tokens));
  constexpr int64_t kMostElements = int64_t{1} << 31;  // tables are of 32 bits
  if (q.dtype != DType::kBF16 || head_dim % 16 != 0 || head_dim > 128 || a.IntOr("window", 0) > 0 ||
      a.DoubleOr("softcap", 0) != 0 || a.Has("axes") || tokens == 0 || tokens % row != 0) {
    return s;
  }
  s.piece_tokens = std::min(tokens, std::max(row, kPackedPieceTokens / row * row));
  if (s.piece_tokens * heads * head_dim >= kMostElements) return {};
  s.pieces = (tokens + s.piece_tokens - 1) / s.piece_tokens;
  const auto take = [&s](int64_t bytes) {
    const Bytes at = s.bytes;
    s.bytes = AlignUp(s.bytes + Bytes{bytes}, 64);
    return at;
  };
  s.table = AlignUp(Bytes{(kPackedMostDocuments + 1) * 4}, 64);
  s.tables = take(s.table.v * 4 * s.pieces);
  if (backward) {
    s.delta = take(s.piece_tokens * heads * 4);
    const int64_t by_head = a.Int("kv_heads") == heads ? 0 : s.piece_tokens * heads * head_dim * 4;
    s.d_k_by_head = take(by_head);
    s.d_v_by_head = take(by_head);
  }
  s.workspace = take(kPackedWorkspace.v);
  return s;
}

}  // namespace temper
