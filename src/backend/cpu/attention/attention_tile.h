// The machine-specific part of attention: a tile of queries of one head against packed keys and values, forward, and a
// block of queries against a block of keys, backward. One table per (instruction set, types); attention.cc drives them.
//
// Tokens count from the start of a unit: a run of whole documents whose keys and values have been packed into panels
// (gemm_tile.h). Row i sees the keys [first[i], last[i]]; last[i] < first[i]: none.
#pragma once

#include <cstdint>

#include "backend/cpu/products/gemm_tile.h"
#include "tensor/dtype.h"

namespace temper {

// Queries and keys of a block of the backward pass: a multiple of every tile's rows and columns (12 x 32, 6 x 16, AMX's
// 32 x 32), and enough for the products summed over a block to outweigh loading and storing their sums.
inline constexpr int64_t kAttentionBlock = 96;
// Copies of rows keep so many elements of a head beside each other; the rest of wider ones lies in further blocks of
// rows, so that the distance between a tile's rows stays a constant.
inline constexpr int64_t kHeadPiece = 256;
inline constexpr int64_t kMaxHeadDim = 2 * kHeadPiece;

struct AttentionForwardTile {
  const void* q = nullptr;                          // row 0 of the tile, one head
  int64_t q_stride = 0, o_stride = 0;               // elements between rows
  int rows = 0;                                     // at most the table's `rows`
  const int32_t *first = nullptr, *last = nullptr;  // of each row, not decreasing; every row sees a key, but to resume
  const void *k_panels = nullptr, *v_panels = nullptr;
  // k: a panel per nr keys, E deep. v: a panel per nr of W, whose depth is the unit's keys; bytes between them.
  int64_t k_panel_bytes = 0, v_panel_bytes = 0;
  int64_t keys = 0;  // packed
  // For forward_paged: the panels of keys lie in pages of page_keys keys, page p of them pages[p] times *_page_bytes
  // behind those given; a panel of v is page_keys deep.
  const int32_t* pages = nullptr;
  int64_t page_keys = 0;  // a multiple of `columns`
  int64_t k_page_bytes = 0, v_page_bytes = 0;
  int64_t E = 0, W = 0;  // elements of a head of q and k, and of v and o
  float scale = 0;
  float cap = 0;  // of scaled scores: cap * tanh(score / cap); 0: none
  // Of each row, what scores without scale grow by with each key on, 0 at the last one (AttentionSlopes); nullptr:
  // none.
  const float* slopes = nullptr;
  bool rounded_slopes = false;
  // Of each row, a capped score of no key that joins its sum of exponentials; nullptr: none. Not with `resume`.
  const float* sinks = nullptr;
  void* scratch = nullptr;  // forward_scratch bytes for each kHeadPiece of the wider of E and W, 64-byte aligned
  void* o = nullptr;
  // f32 rows, o_stride apart, to which o goes instead. With `resume` they and lse hold those of other keys, which are
  // taken in; lse is then set, too.
  float* sums = nullptr;
  bool resume = false;
  float* lse = nullptr;  // nullptr: not wanted
  int64_t lse_stride = 0;
};

struct AttentionBackwardBlock {
  int64_t rows = 0, keys = 0;                       // at most kAttentionBlock
  int64_t first_key = 0;                            // of the block, a multiple of kAttentionBlock
  const int32_t *first = nullptr, *last = nullptr;  // of each row
  // Copied by copy_rows, kAttentionBlock rows; zero from `rows` up to a whole tile.
  const void *q_rows = nullptr, *d_o_rows = nullptr;
  // A panel per nr of E (d_o: W), kAttentionBlock deep; bytes between them. With turn_keys they are panels of A.
  const void *q_panels = nullptr, *d_o_panels = nullptr;
  int64_t row_panel_bytes = 0;
  // A panel per nr keys of the unit, E deep (v: W); bytes between them.
  const void *k_panels = nullptr, *v_panels = nullptr;
  int64_t k_panel_bytes = 0, v_panel_bytes = 0;
  // A panel per nr of E, whose depth is the unit's keys; bytes between them.
  const void* k_depth_panels = nullptr;
  int64_t k_depth_panel_bytes = 0;
  const float *lse = nullptr, *delta = nullptr;  // of each row: lse is natural, delta = d_o . o
  int64_t E = 0, W = 0;                          // elements of a head of q and k, and of v and d_o
  float scale = 0;
  float cap = 0;                  // of scaled scores: cap * tanh(score / cap); 0: none
  const float* slopes = nullptr;  // as above, of each row
  bool rounded_slopes = false;
  void* scratch = nullptr;  // backward_scratch bytes for each kHeadPiece, as above
  // f32 sums to add to: kAttentionBlock rows of E elements (d_v: W), rounded up to whole vectors of a tile (padded_E).
  // d_q: for the block's rows; d_k, d_v: for the block's keys, with turn_keys [E, kAttentionBlock]. d_q and d_k lack
  // the factor `scale`.
  float *d_q = nullptr, *d_k = nullptr, *d_v = nullptr;
};

struct AttentionKernels {
  const TileKernels* tiles;  // whose packing makes the panels, and whose enter and leave enclose calls of a thread
  int rows;                  // of a tile
  int columns;               // of a tile, nr of gemm_tile.h: E is rounded up to it in sums
  int64_t row_bytes;         // between rows that copy_rows writes
  int64_t forward_scratch, backward_scratch;  // bytes of heads of at most kHeadPiece
  void (*forward)(const AttentionForwardTile& tile);
  // The same over pages, whose panels hold elements in the type of q, paged_step of a line beside each other. What a
  // row gets depends on its own keys alone, whatever others the tile has, to the bit. Null: there is none.
  void (*forward_paged)(const AttentionForwardTile& tile);
  int paged_step;
  void (*backward)(const AttentionBackwardBlock& block);
  // Makes rows of what `backward` has added up for a block of keys: of [E, kAttentionBlock] as many rows of E, rounded
  // up to `columns`. `scratch` as of a block. Null: d_k and d_v are rows.
  void (*turn_keys)(float* sums, int64_t E, void* scratch);
  // Rows of E elements, `stride` apart, in the layout of tiles; zero rows from `rows` to `padded_rows`. row_bytes each;
  // elements from kHeadPiece on lie padded_rows rows behind those before.
  void (*copy_rows)(const void* source, int64_t stride, int64_t rows, int64_t padded_rows, int64_t E, void* to);
  // out[i] = a[i] . b[i] of rows of E elements, `stride` apart.
  void (*row_dots)(const void* a, const void* b, int64_t stride, int64_t rows, int64_t E, float* out);
  // Rows of E elements, `stride` apart: scale * sums, of which a row has E rounded up to `columns`.
  void (*write_rows)(const float* sums, float scale, int64_t rows, int64_t E, void* to, int64_t stride);
  // The same in f32; `add`: to the existing values.
  void (*add_rows)(const float* sums, float scale, int64_t rows, int64_t E, bool add, float* to, int64_t stride);
};

extern const AttentionKernels kAttentionF32Avx512, kAttentionBF16Avx512, kAttentionBF16AsF32Avx512;
extern const AttentionKernels kAttentionF32Avx2, kAttentionBF16AsF32Avx2;
extern const AttentionKernels kAttentionBF16Amx;

}  // namespace temper
