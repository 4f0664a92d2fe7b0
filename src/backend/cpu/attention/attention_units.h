// Shared by the kernels of attention: the layout of heads, the tables of tiles, and how threads share units of work.
// Internal to backend/cpu/attention*.cc.
#pragma once

#include <atomic>
#include <vector>

#include "backend/cpu/attention/attention_tile.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/products/gemm.h"
#include "base/team.h"
#include "graph/ops/attention_heads.h"
#include "graph/ops/attention_scratch.h"

namespace temper {

// Queries of a forward unit: enough that packing the keys again for each is negligible beside the products.
inline constexpr int64_t kSegment = 512;

inline const AttentionKernels& AttentionKernelsOf(DType dtype, Isa isa) {
  if (dtype == DType::kF32) return isa >= Isa::kAvx512 ? kAttentionF32Avx512 : kAttentionF32Avx2;
  if (isa == Isa::kAmxBf16) return kAttentionBF16Amx;
  if (isa == Isa::kAvx512Bf16Dot) return kAttentionBF16Avx512;
  return isa >= Isa::kAvx512 ? kAttentionBF16AsF32Avx512 : kAttentionBF16AsF32Avx2;
}

// What all kernels know of their heads.
struct HeadLayout {
  int64_t heads, kv_heads, group, E, W, window;  // E of q and k, W of v and o
  float scale, cap;
  std::vector<float> slopes;  // of each head (AttentionSlopes); empty: none
  bool rounded_slopes;
  int64_t element;  // bytes of q, k, v
  const AttentionKernels* kernels;
  const TileKernels* tiles;

  HeadLayout(const KernelSpec& spec, const TensorType& q, const TensorType& v, const AttentionKernels& table)
      : heads(spec.attributes.Int("heads")),
        kv_heads(spec.attributes.Int("kv_heads")),
        group(heads / kv_heads),
        E(q.shape[1] / heads),
        W(v.shape[1] / kv_heads),
        window(spec.attributes.IntOr("window", 0)),
        scale(static_cast<float>(spec.attributes.Double("scale"))),
        cap(static_cast<float>(spec.attributes.DoubleOr("softcap", 0))),
        rounded_slopes(spec.attributes.Flag(AttentionSlopes::kRoundedKey)),
        element(SizeOf(q.dtype)),
        kernels(&table),
        tiles(table.tiles) {
    TEMPER_CHECK(kernels->columns == tiles->nr) << kernels->columns;
    TEMPER_CHECK(kernels->forward_scratch <= kForwardTileBound && kernels->backward_scratch <= kBackwardTileBound &&
                 kernels->row_bytes <= kAttentionRowBytesBound && kAttentionBlock <= kAttentionBlockBound &&
                 kHeadPiece == kHeadPieceBound)
        << kernels->forward_scratch << ", " << kernels->backward_scratch << ", " << kernels->row_bytes;
    if (!spec.attributes.Has(AttentionSlopes::kKey)) return;
    for (const double slope : spec.attributes.Doubles(AttentionSlopes::kKey)) {
      slopes.push_back(static_cast<float>(slope));
    }
  }

  int64_t query_stride() const { return heads * E; }
  int64_t key_stride() const { return kv_heads * E; }
  int64_t value_stride() const { return kv_heads * W; }
  int64_t out_stride() const { return heads * W; }
  int64_t Padded(int64_t width) const { return (width + tiles->nr - 1) / tiles->nr * tiles->nr; }
  int64_t PanelBytes(int64_t depth) const {
    return (depth + tiles->k_step - 1) / tiles->k_step * tiles->k_step * tiles->nr * tiles->element_size;
  }
  std::byte* At(std::byte* data, int64_t index) const { return data + index * element; }
  // Panels of tokens [first, first + n) of a head, `width` deep; or of `width`, n deep.
  void PackTokens(const std::byte* head, int64_t stride, int64_t n, int64_t width, std::byte* panels) const {
    tiles->pack_k(head, stride, n, tiles->nr, true, width, panels, PanelBytes(width));
  }
  void PackDepth(const std::byte* head, int64_t stride, int64_t n, int64_t width, std::byte* panels) const {
    tiles->pack_lines(head, stride, width, tiles->nr, true, n, panels, PanelBytes(n));
  }
  // The second with queries for tokens: what d_k and d_v are products of.
  void PackQueries(const std::byte* head, int64_t stride, int64_t n, int64_t width, std::byte* panels) const {
    if (kernels->turn_keys == nullptr) return PackDepth(head, stride, n, width, panels);
    tiles->pack_lines(head, stride, width, tiles->mr, false, n, panels, PanelBytes(n));
  }
};

// Whether the tiles apply: whole vectors of E and W, a positive scale (the softmax's maximum is taken before scaling).
inline bool Served(const KernelSpec& spec, const TensorType& q, const TensorType& v) {
  if (q.dtype != DType::kF32 && q.dtype != DType::kBF16) return false;
  const auto whole = [](int64_t width) { return width > 0 && width % 16 == 0 && width <= kMaxHeadDim; };
  return whole(q.shape[1] / spec.attributes.Int("heads")) && whole(v.shape[1] / spec.attributes.Int("kv_heads")) &&
         spec.attributes.Double("scale") > 0;
}

// A sink of some float type.
inline float SinkAt(const std::byte* sink_H, ElementFormat type, int64_t head) {
  if (type == DType::kBF16) return ToFloat(reinterpret_cast<const bf16*>(sink_H)[head]);
  if (type == DType::kF64) return static_cast<float>(reinterpret_cast<const double*>(sink_H)[head]);
  return reinterpret_cast<const float*>(sink_H)[head];
}

// Calls body(i, thread) for i < n, each on whichever thread is free: units differ in cost.
template <class Body>
void ForEachUnit(const TileKernels& tiles, int threads, int64_t n, std::atomic<int64_t>& next, const Body& body) {
  next.store(0, std::memory_order_relaxed);
  RunTeam(threads, [&](TeamMember self) {
    if (tiles.enter != nullptr) tiles.enter();
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) body(i, self.index);
    if (tiles.leave != nullptr) tiles.leave();
  });
}

}  // namespace temper
