// Tiles of 32 x 32 on Intel's matrix units (AMX): 2 x 2 tile registers of f32 sums, two of A and two of B. A product of
// two registers takes 16 cycles and a load 8, so the four loads of a step hide behind its four products.
//
// Compiled twice: for the processor (gemm_tile_amx.cc), and for tests with an emulation of its instructions
// (emulator/gemm_tile_amx_avx512.cc), which is included before this.
//
// A step is 32 k. B's panels are those of vdpbf16ps: a word is two k of a column, 32 columns lie side by side, and 16
// such lines are a step. A's hold for each step 32 k of each row, 64 bytes, for 16 or 32 rows. Whole steps of whole
// panels are read where the operand lies, since a tile load takes a stride; what is copied are edges, which end in
// zeros. All registers are always whole.
#pragma once

#include "backend/cpu/products/amx_registers-inl.h"
#include "backend/cpu/products/gemm_tile_avx512-inl.h"

namespace temper {
namespace {

constexpr int kMr = 32, kNr = 32, kStep = 32;
constexpr int kBLineBytes = kNr * 4, kBStepBytes = kStep / 2 * kBLineBytes;

// R x C registers of sums: as many as the tile has rows and columns for.
template <int R, int C>
void Tile(const APanel& a_panel, const BPanel& b_panel, int rows, int columns, int64_t row, int64_t column,
          const TileOutput& output) {
  __mmask16 mask[C];
  for (int v = 0; v < C; ++v) mask[v] = WordMask(columns - 16 * v);
  alignas(64) float sums[kMr][kNr];
  constexpr int kLine = kNr * sizeof(float);
  AskForOutput<C>(rows, row, column, output);
  BeforeTileLoads();
  if (output.start == nullptr) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    for (int i = 0; i < R * kRegisterRows; ++i) {
      const float* start = output.start + (row + i) * output.start_stride + column;
      for (int v = 0; v < C; ++v) {
        _mm512_store_ps(sums[i] + 16 * v,
                        i < rows ? _mm512_maskz_loadu_ps(mask[v], start + 16 * v) : _mm512_setzero_ps());
      }
    }
    BeforeTileLoads();
    _tile_loadd(0, sums[0], kLine);
    if constexpr (C == 2) _tile_loadd(1, sums[0] + 16, kLine);
    if constexpr (R == 2) _tile_loadd(2, sums[kRegisterRows], kLine);
    if constexpr (R == 2 && C == 2) _tile_loadd(3, sums[kRegisterRows] + 16, kLine);
  }
  const auto add_steps = [](const char* a, int64_t a_register, int64_t a_stride, int64_t a_step, const char* b,
                            int64_t steps) {
    for (int64_t s = 0; s < steps; ++s, a += a_step, b += kBStepBytes) {
      _tile_loadd(4, a, a_stride);
      _tile_loadd(6, b, kBLineBytes);
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (C == 2) {
        _tile_loadd(7, b + kRowBytes, kBLineBytes);
        _tile_dpbf16ps(1, 4, 7);
      }
      if constexpr (R == 2) {
        _tile_loadd(5, a + a_register, a_stride);
        _tile_dpbf16ps(2, 5, 6);
      }
      if constexpr (R == 2 && C == 2) _tile_dpbf16ps(3, 5, 7);
    }
  };
  // Either operand may go on elsewhere.
  const int64_t all = b_panel.steps + b_panel.more_steps;
  for (int64_t s = 0, end; s < all; s = end) {
    end = s < a_panel.row_steps ? a_panel.row_steps : all;
    if (s < b_panel.steps && end > b_panel.steps) end = b_panel.steps;
    const char* b = static_cast<const char*>(s < b_panel.steps ? b_panel.panel : b_panel.more) +
                    (s < b_panel.steps ? s : s - b_panel.steps) * kBStepBytes;
    if (s < a_panel.row_steps) {
      add_steps(static_cast<const char*>(a_panel.rows) + s * kRowBytes, kRegisterRows * a_panel.row_bytes,
                a_panel.row_bytes, kRowBytes, b, end - s);
    } else {
      add_steps(static_cast<const char*>(a_panel.panel) + (s - a_panel.row_steps) * R * kRegisterBytes, kRegisterBytes,
                kRowBytes, R * kRegisterBytes, b, end - s);
    }
  }
  _tile_stored(0, sums[0], kLine);
  if constexpr (C == 2) _tile_stored(1, sums[0] + 16, kLine);
  if constexpr (R == 2) _tile_stored(2, sums[kRegisterRows], kLine);
  if constexpr (R == 2 && C == 2) _tile_stored(3, sums[kRegisterRows] + 16, kLine);
  for (int i = 0; i < rows; ++i) {
    __m512 sum[C];
    for (int v = 0; v < C; ++v) sum[v] = _mm512_load_ps(sums[i] + 16 * v);
    WriteRow<BF16Pairs, C>(sum, mask, row + i, column, output);
  }
}

void TileOfRows(const APanel& a, const BPanel& b, int rows, int columns, int64_t row, int64_t column,
                const TileOutput& output) {
  const TileFn tile =
      rows > kRegisterRows ? (columns > 16 ? Tile<2, 2> : Tile<2, 1>) : (columns > 16 ? Tile<1, 2> : Tile<1, 1>);
  tile(a, b, rows, columns, row, column, output);
}

// Rows that a panel of A with `lines` of them holds.
inline int64_t PanelRows(int64_t lines) {
  return lines > kRegisterRows ? 2 * kRegisterRows : kRegisterRows;
}
inline __mmask32 HalfMask(int64_t n) {
  return n >= 32 ? 0xFFFFFFFF : n <= 0 ? 0 : static_cast<__mmask32>((1ull << n) - 1);
}

// A with its k contiguous: rows are copied a few steps at a time, in runs that memory reads well, into lines that do
// not yet push each other out of the first-level cache.
void PackRows(const void* source, int64_t stride, int64_t lines, int width, int64_t depth, char* panel,
              int64_t panel_bytes) {
  constexpr int64_t kRun = 4 * kStep;
  const uint16_t* in = static_cast<const uint16_t*>(source);
  for (int64_t first = 0; first < lines; first += width, panel += panel_bytes) {
    const int64_t count = lines - first < width ? lines - first : width, rows = PanelRows(count);
    for (int64_t run = 0; run < depth; run += kRun) {
      const int64_t end = run + kRun < depth ? run + kRun : depth;
      for (int64_t i = 0; i < rows; ++i) {
        const uint16_t* line = in + (first + i) * stride;
        for (int64_t k = run; k < end; k += kStep) {
          const __m512i x =
              i < count ? _mm512_maskz_loadu_epi16(HalfMask(depth - k), line + k) : _mm512_setzero_si512();
          _mm512_store_si512(panel + (k / kStep * rows + i) * kRowBytes, x);
        }
      }
    }
  }
}

// A with its rows contiguous: steps outermost, so that 32 lines of the source are read from end to end.
void PackTransposed(const void* source, int64_t stride, int64_t lines, int width, int64_t depth, char* panels,
                    int64_t panel_bytes) {
  const uint16_t* in = static_cast<const uint16_t*>(source);
  for (int64_t k = 0; k < depth; k += kStep) {
    char* panel = panels;
    for (int64_t first = 0; first < lines; first += width, panel += panel_bytes) {
      const int64_t count = lines - first < width ? lines - first : width, rows = PanelRows(count);
      for (int64_t half = 0; half < rows; half += kRegisterRows) {
        const __mmask16 mask = WordMask(count - half);
        const uint16_t* p = in + k * stride + first + half;
        __m512i r[16];  // word w of 16 rows: k + 2 w and the one after it
#pragma GCC unroll 16
        for (int w = 0; w < 16; ++w) {
          const __mmask16 even = k + 2 * w < depth ? mask : 0, odd = k + 2 * w + 1 < depth ? mask : 0;
          const __m256i low = _mm256_maskz_loadu_epi16(even, p + 2 * w * stride);
          const __m256i high = _mm256_maskz_loadu_epi16(odd, p + (2 * w + 1) * stride);
          r[w] = _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
        }
        Transpose16(r);
        char* to = panel + (k / kStep * rows + half) * kRowBytes;
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) _mm512_store_si512(to + i * kRowBytes, r[i]);
      }
    }
  }
}

// B is what vdpbf16ps takes, filled up with zeros to whole steps.
void PackColumns(PackFn pack, const void* source, int64_t stride, int64_t lines, int64_t depth, char* panel,
                 int64_t panel_bytes) {
  pack(source, stride, lines, kNr, true, depth, panel, panel_bytes);
  const int64_t packed = (depth + 1) / 2, whole = (depth + kStep - 1) / kStep * (kStep / 2);
  for (int64_t first = 0; first < lines; first += kNr, panel += panel_bytes) {
    for (int64_t word = packed * kNr; word < whole * kNr; word += 16) {
      _mm512_store_si512(panel + word * 4, _mm512_setzero_si512());
    }
  }
}

template <bool kRowsContiguous>
void Pack(const void* source, int64_t stride, int64_t lines, int width, bool pad, int64_t depth, void* panels,
          int64_t panel_bytes) {
  char* const out = static_cast<char*>(panels);
  if (pad) {
    const PackFn pack = kRowsContiguous ? kTilesBF16Avx512.pack_lines : kTilesBF16Avx512.pack_k;
    PackColumns(pack, source, stride, lines, depth, out, panel_bytes);
  } else if (kRowsContiguous) {
    PackTransposed(source, stride, lines, width, depth, out, panel_bytes);
  } else {
    PackRows(source, stride, lines, width, depth, out, panel_bytes);
  }
}

// Half the depth of AVX-512's blocks: in the same bytes of the second-level cache twice as many rows of A then share a
// panel of B, which comes from the third. A tile is multiplied 16 times as fast and cannot wait for that.
constexpr TileKernels kTable = {.mr = kMr,
                                .nr = kNr,
                                .k_step = kStep,
                                .element_size = 2,
                                .source_size = 2,
                                .pack_k = Pack<false>,
                                .pack_lines = Pack<true>,
                                .tile = TileOfRows,
                                .row_step = kRegisterRows,
                                .depth_bytes = 2048,
                                .enter = EnterTiles,
                                .leave = LeaveTiles,
                                .rows_in_place = true,
                                .pair_panels = true,
                                .read_int8 = ReadInt8,
                                .read_nf4 = ReadNf4};

}  // namespace
}  // namespace temper
