// The machine-specific part of a matrix product: packing operands into panels and multiplying them into tiles.
// One table per (instruction set, type of the operands, type of the arithmetic); gemm.cc drives them.
//
// A panel holds `width` rows of A or columns of B^T (all called lines here) over a run of k. It is a sequence of steps;
// a step holds, for each line, k_step consecutive k (bf16 products take pairs: k_step 2), so that a tile reads both of
// its panels from front to back. How they lie within a step is between a table's packing and its tile. What lies beyond
// the operand is zero.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace temper {

struct FormatReaders;  // backend/cpu/formats

// What happens to a tile between its f32 sums and memory: out = scale * (tile + sum) + bias + acc, rounded once.
// Pointers are to row 0, column 0 of the whole matrix; null where absent. `acc` and `start` may equal `out`.
struct TileOutput {
  void* out = nullptr;
  int64_t out_stride = 0;  // elements between rows
  const void* acc = nullptr;
  int64_t acc_stride = 0;
  const void* bias = nullptr;  // one per column
  const float* sum = nullptr;  // what earlier blocks of k came to
  int64_t sum_stride = 0;
  // What the tile's sums begin with; null: zero. `goes_on`: every block of k begins with what those before it left in
  // `out`. The products of several calls, each starting with what the one before made, are then added up as those of
  // one would be, wherever k is cut. (`acc` is added to a tile's sum when that is complete.)
  const float* start = nullptr;
  int64_t start_stride = 0;
  bool goes_on = false;
  float scale = 1;
  DType out_dtype = DType::kF32;  // each kF32 or kBF16
  DType acc_dtype = DType::kF32;
  DType bias_dtype = DType::kF32;
};

// Packs lines [0, lines) of `source` for k in [0, depth) into panels of `width` lines, panel_bytes apart. `stride` is
// in elements: line i's element k is source[i * stride + k] (k contiguous) or source[k * stride + i] (lines
// contiguous). Where lines end within a panel, that panel is zero beyond them (pad) or narrower (!pad), by whole
// row_steps. May write kPanelSlack bytes past the last panel, and into the gaps between panels. REQUIRES: width is the
// height of tiles, a multiple of row_step up to mr, for A (!pad), or nr, for B (pad); panel_bytes is a multiple of the
// vector length (64).
using PackFn = void (*)(const void* source, int64_t stride, int64_t lines, int width, bool pad, int64_t depth,
                        void* panels, int64_t panel_bytes);

// A panel of B, and what its last steps read instead where they lie apart: for tables with pair_panels only.
struct BPanel {
  const void* panel;
  int64_t steps;
  const void* more = nullptr;
  int64_t more_steps = 0;
};

// Panels of A, one below the other, by one panel of B: out[row + i, column + j] for i < rows, j < columns. Its last
// tile may stay unwritten until the thread's next strip, or until `finish`, which must come before anyone reads it and
// before the addresses in `output` change their meaning. REQUIRES: rows > 0; in place b.more_steps == 0.
struct TileStrip {
  const void* a;  // panels of `height` rows (the last may have fewer), a_panel_bytes apart
  int64_t a_panel_bytes;
  int64_t a_row_bytes = 0;  // 0: A is packed. Of tables with rows_in_place: its rows lie this far apart
  // Of tables with lines_in_place, where A, or B of which all columns are there, is not packed: from one k to the next,
  // lines being side by side. At most one of the three.
  int64_t a_step_bytes = 0, b_step_bytes = 0;
  int height;  // a multiple of row_step
  int64_t row, rows;
  BPanel b;  // of nr columns
  int64_t column;
  int columns;
  TileOutput output;
  bool past_caches = false;    // the output is larger than the cache that could keep it until it is read
  const void* next = nullptr;  // what the caller multiplies after this: may be asked for meanwhile
  int64_t next_bytes = 0;
};
using StripFn = void (*)(const TileStrip& strip);

// Of an operand's block that stays packed in a second-level cache of 1 MiB, with a panel of the other beside it.
inline constexpr int64_t kCachedBlockBytes = 448 << 10;

struct TileKernels {
  int mr, nr;         // largest tile
  int k_step;         // k per step
  int element_size;   // bytes of one element of a panel
  int source_size;    // bytes of one element of an operand
  PackFn pack_k;      // k contiguous
  PackFn pack_lines;  // lines contiguous
  StripFn strip;
  int row_step = 1;            // widths of A's panels are multiples of it
  int64_t depth_bytes = 4096;  // of a line in a block of k, at most: a block less deep writes partial sums more often
  int64_t a_block_bytes = kCachedBlockBytes;  // of A, for tiles that go down columns of the output
  void (*enter)() = nullptr;                  // what a thread calls before its first tile of a product,
  void (*leave)() = nullptr;                  // and after its last
  void (*finish)() = nullptr;                 // writes what the thread's last strip left unwritten, if anything
  bool rows_in_place = false;                 // strips read A whose k is contiguous: whole steps of whole row_steps
  bool lines_in_place = false;                // and A or B whose lines are contiguous
  bool pair_panels = false;  // panels of B are those of tensor/element_layout.h: nr lines, over any depth
  // For tables of bf16: the readers of formats in which weights are stored and none of the tables computes. What is
  // packed are the panels of the same numbers in bf16.
  const FormatReaders* readers = nullptr;
};

inline constexpr int kPanelSlack = 64;

extern const TileKernels kTilesF32Avx512, kTilesBF16Avx512;  // bf16: vdpbf16ps, f32 sums
extern const TileKernels kTilesBF16AsF32Avx512;              // bf16 storage, f32 panels and arithmetic
extern const TileKernels kTilesF32Avx2, kTilesBF16AsF32Avx2;
extern const TileKernels kTilesBF16Amx;  // f32 sums

}  // namespace temper
