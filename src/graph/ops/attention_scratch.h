// Scratch of attention's ops: their workspace rules and the layout that the kernels use.
#pragma once

#include <algorithm>

#include "graph/rule.h"

namespace temper {

// Offsets into the workspace, 64-byte aligned. From `threads` on each thread has thread_bytes of scratch; the offsets
// after it count from a thread's own.
struct AttentionScratch {
  Bytes units;  // pairs of i32 [T]: runs of documents
  Bytes seen;   // pairs of i32 [T]: the keys that a query sees
  Bytes threads, thread_bytes;
  // f32 (bf16 in half of it) [longest, E], E a multiple of 32; of what belongs to v its own width.
  Bytes k_panels, v_panels;
  Bytes k_depth_panels;    // the same; backward only, like what follows
  Bytes d_k, d_v;          // f32 [longest, E]
  Bytes q_rows, d_o_rows;  // [pieces of a head, block, row]
  Bytes q_panels, d_o_panels;
  Bytes d_q;   // f32 [block, E]
  Bytes tile;  // scratch of a tile
  Bytes bytes;
};

struct AttentionDims {
  int64_t tokens = 0, keys = 0;  // keys: longest run of keys that one query may see
  int64_t head_dim = 0, v_head_dim = 0;
};

// The longest document: attribute `row`, the packed row length, which no document crosses; all tokens if absent.
inline AttentionDims AttentionDimsOf(const TensorType& q, const TensorType& v, const Attributes& a) {
  const int64_t tokens = q.shape[0];
  return {tokens, std::min(tokens, a.IntOr("row", tokens)), q.shape[1] / a.Int("heads"),
          v.shape[1] / a.Int("kv_heads")};
}

inline constexpr int64_t kAttentionBlockBound = 96;  // backend/cpu/attention/attention_tile.h, which checks these
inline constexpr int64_t kAttentionRowBytesBound = 1088;
inline constexpr int64_t kForwardTileBound = 96 << 10;  // of a piece of a head, like the row
inline constexpr int64_t kBackwardTileBound = 128 << 10;
inline constexpr int64_t kHeadPieceBound = 256;

inline int64_t HeadPieces(int64_t width) {
  return (width + kHeadPieceBound - 1) / kHeadPieceBound;
}

// Of attention_cached, as above: runs of a step's tokens, then a tile for each thread.
struct CachedScratch {
  Bytes runs;
  Bytes threads, thread_bytes;
  Bytes bytes;
};
inline constexpr int64_t kCachedRunBytes = 8;

// `width`: the wider of a head's q and v.
inline CachedScratch CachedScratchOf(int64_t tokens, int64_t width, int threads) {
  CachedScratch s;
  s.threads = AlignUp(Bytes{tokens * kCachedRunBytes}, 64);
  s.thread_bytes = Bytes{kForwardTileBound} * HeadPieces(width);
  s.bytes = s.threads + s.thread_bytes * threads;
  return s;
}

inline AttentionScratch AttentionScratchOf(const AttentionDims& d, bool backward, int threads) {
  constexpr int64_t kSlack = 128;
  AttentionScratch s;
  const auto take = [&s](int64_t bytes) {
    const Bytes at = s.bytes;
    s.bytes = AlignUp(s.bytes + Bytes{bytes}, 64);
    return at;
  };
  const auto padded = [](int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; };
  // A unit of short documents may be as long as a block.
  const int64_t L = padded(std::max(d.keys, std::min(d.tokens, kAttentionBlockBound)), kAttentionBlockBound);
  const int64_t E = padded(d.head_dim, 32), W = padded(d.v_head_dim, 32);
  s.units = take(d.tokens * 8);
  s.seen = take(d.tokens * 8);
  s.threads = s.bytes;
  s.bytes = {};
  s.k_panels = take(L * E * 4 + kSlack);
  s.v_panels = take(L * W * 4 + kSlack);
  if (backward) {
    s.k_depth_panels = take(L * E * 4 + kSlack);
    s.d_k = take(L * E * 4);
    s.d_v = take(L * W * 4);
    s.q_rows = take(HeadPieces(E) * kAttentionBlockBound * kAttentionRowBytesBound);
    s.d_o_rows = take(HeadPieces(W) * kAttentionBlockBound * kAttentionRowBytesBound);
    s.q_panels = take(kAttentionBlockBound * E * 4 + kSlack);
    s.d_o_panels = take(kAttentionBlockBound * W * 4 + kSlack);
    s.d_q = take(kAttentionBlockBound * E * 4);
  }
  s.tile = take(HeadPieces(std::max(E, W)) * (backward ? kBackwardTileBound : kForwardTileBound));
  s.thread_bytes = s.bytes;
  s.bytes = s.threads + s.thread_bytes * threads;
  return s;
}

// What GPUs keep during attention's backward: offsets into the workspace, 64-byte aligned.
struct GpuAttentionScratch {
  int64_t parts = 1;  // blocks that make d_k and d_v of the same keys, each of some of the heads that share them
  Bytes delta;        // f32 [T, H]: d_o . o
  Bytes d_k, d_v;     // f32 [parts, T, K*E], to be added up in order, where there are several
  Bytes bytes;
};

// A block per 128 keys and KV head leaves most of a card idle where a batch is short or KV heads are few, and the first
// keys of a long row take twice the average time. So there are as many parts as two blocks for each of 132
// multiprocessors take, and at most four. Shapes alone decide, not the card: neither bits nor plans depend on it. The
// sums take at most 4 * 132 * 128 * 128 * 2 floats (66 MiB) with heads of 128; plans of CPUs count them, too.
inline GpuAttentionScratch GpuAttentionScratchOf(DType dtype, int64_t tokens, int64_t heads, int64_t kv_heads,
                                                 int64_t head_dim) {
  constexpr int64_t kKeys = 128, kBlocks = 2 * 132;
  const int64_t sharing = heads / kv_heads, blocks = (tokens + kKeys - 1) / kKeys * kv_heads;
  GpuAttentionScratch s;
  // In f32 kernels divide nothing.
  for (int64_t next = 2; dtype == DType::kBF16 && next <= sharing && blocks * s.parts < kBlocks; ++next) {
    if (sharing % next == 0 && blocks * next <= 2 * kBlocks) s.parts = next;
  }
  const auto take = [&s](int64_t elements) {
    const Bytes at = s.bytes;
    s.bytes = AlignUp(s.bytes + Bytes{elements * SizeOf(DType::kF32)}, 64);
    return at;
  };
  const int64_t sums = s.parts > 1 ? s.parts * tokens * kv_heads * head_dim : 0;
  s.delta = take(tokens * heads);
  s.d_k = take(sums);
  s.d_v = take(sums);
  return s;
}
inline GpuAttentionScratch GpuAttentionScratchOf(const TensorType& q, const Attributes& a) {
  return GpuAttentionScratchOf(q.dtype, q.shape[0], a.Int("heads"), a.Int("kv_heads"), q.shape[1] / a.Int("heads"));
}

}  // namespace temper
