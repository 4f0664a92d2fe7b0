// Tiles of 32 x 32 on Intel's matrix units (AMX): 2 x 2 tile registers of f32 sums, two of A and two of B. A product of
// two registers takes 16 cycles and a load from the first-level cache 8, so the four loads of a step hide behind its
// four products. What else a product does must hide there, too:
//
// - A panel of B is multiplied by all tiles of a strip: of it, what fits stays in the first-level cache. A, and of B
//   what does not fit, are read by the loads for streams, which leave that cache as it is.
// - A tile whose sums are complete is rounded and written, row by row, while the next one is multiplied. Where the
//   output is not in a cache, whole lines are written past them: a store that waits for its line to be read blocks the
//   tile loads behind it.
// - The next panel of B is asked for.
//
// Compiled twice: for the processor (gemm_tile_amx.cc), and for tests with an emulation of its instructions
// (emulator/gemm_tile_amx_avx512.cc), which is included before this.
//
// A step is 32 k. B's panels are those of vdpbf16ps: a word is two k of a column, 32 columns lie side by side, and 16
// such lines are a step. A's hold for each step 32 k of each row, 64 bytes, for 16 or 32 rows. What is beyond an
// operand is zero. All registers are always whole.
#pragma once

#include "backend/cpu/products/amx_registers-inl.h"
#include "backend/cpu/products/gemm_tile_avx512-inl.h"

namespace temper {
namespace {

constexpr int kMr = 32, kNr = 32, kStep = 32;
constexpr int kBLineBytes = kNr * 4, kBStepBytes = kStep / 2 * kBLineBytes;

// Of a panel of B: 40 KiB of a first-level cache of 48.
constexpr int64_t kStepsInCache = 20;

// Asks for the 32 columns from `column` on of a row, to be changed.
void AskFor(const void* matrix, int64_t stride, DType dtype, int64_t row, int64_t column) {
  const int64_t size = dtype == DType::kF32 ? 4 : 2;
  const char* at = static_cast<const char*>(matrix) + (row * stride + column) * size;
  __builtin_prefetch(at, 1);
  __builtin_prefetch(at + kNr * size - 1, 1);
}

// Whether a strip may be written past the caches: in whole lines of memory, none of which is read first.
bool InWholeLines(const TileOutput& o, int64_t column, int columns) {
  const int64_t size = o.out_dtype == DType::kF32 ? 4 : 2;
  return o.acc != o.out && o.start != o.out && o.sum != o.out && columns == kNr &&
         (reinterpret_cast<uintptr_t>(o.out) + static_cast<uintptr_t>(column * size)) % 64 == 0 &&
         o.out_stride * size % 64 == 0;
}

// A tile that is complete and not yet in memory.
struct Unwritten {
  alignas(64) float sums[kMr][kNr] = {};
  TileOutput output;
  int64_t row = 0, column = 0;
  int rows = 0, columns = 0, written = 0;
  bool past_caches = false;

  // The next `count` rows.
  void Write(int count) {
    const int end = written + count < rows ? written + count : rows;
    if (written == end) return;
    const __mmask16 mask[2] = {WordMask(columns), WordMask(columns - 16)};
    for (; written < end && columns <= 16; ++written) {
      const __m512 sum[1] = {_mm512_load_ps(sums[written])};
      WriteRow<BF16Pairs, 1>(sum, {mask[0]}, row + written, column, output);
    }
    for (; written < end && !past_caches; ++written) {
      const __m512 sum[2] = {_mm512_load_ps(sums[written]), _mm512_load_ps(sums[written] + 16)};
      WriteRow<BF16Pairs, 2>(sum, mask, row + written, column, output);
    }
    for (; written < end; ++written) {
      const int64_t r = row + written;
      __m512 x[2] = {_mm512_load_ps(sums[written]), _mm512_load_ps(sums[written] + 16)};
      Complete<2>(x, mask, r, column, output);
      if (output.out_dtype == DType::kF32) {
        float* p = static_cast<float*>(output.out) + r * output.out_stride + column;
        _mm512_stream_ps(p, x[0]);
        _mm512_stream_ps(p + 16, x[1]);
      } else {
        uint16_t* p = static_cast<uint16_t*>(output.out) + r * output.out_stride + column;
        const __m512i low = _mm512_castsi256_si512(BF16Pairs::Narrow(x[0]));
        _mm512_stream_si512(reinterpret_cast<__m512i*>(p), _mm512_inserti64x4(low, BF16Pairs::Narrow(x[1]), 1));
      }
    }
  }
};
constinit thread_local Unwritten unwritten;

void Finish() {
  unwritten.Write(kMr);
  _mm_sfence();  // what was written past the caches is seen by whoever this thread meets
}

using Sums = float[kMr][kNr];
constexpr int kSumLine = kNr * sizeof(float);

// What a tile starts with: where it lies if that is a whole tile, else in `sums` with zeros around it.
struct Start {
  const float* sums = nullptr;
  int64_t line = 0;  // bytes
};
Start StartOf(const TileOutput& o, int rows, int columns, int64_t row, int64_t column, Sums& sums) {
  const float* from = o.start + row * o.start_stride + column;
  if (rows == kMr && columns == kNr) return {from, o.start_stride * static_cast<int64_t>(sizeof(float))};
  const __mmask16 mask[2] = {WordMask(columns), WordMask(columns - 16)};
  for (int i = 0; i < kMr; ++i, from += o.start_stride) {
    for (int v = 0; v < 2; ++v) {
      _mm512_store_ps(sums[i] + 16 * v, i < rows ? _mm512_maskz_loadu_ps(mask[v], from + 16 * v) : _mm512_setzero_ps());
    }
  }
  return {sums[0], kSumLine};
}

// What goes on beside a tile's products: of the tile before it, of its own output, of the panel after it.
struct Beside {
  int rows;  // to write per step
  const TileOutput* output;
  int64_t row = 0, column;
  int ask_rows = 0;  // of the output, yet to be asked for
  int below = 0;     // rows down to the next tile of the strip; 0: there is none
  bool past_caches;
  const char *next, *next_end;
  int64_t next_lines;  // per step

  void Step() {
    unwritten.Write(rows);
    for (int i = 0; i < rows && ask_rows > 0; ++i, ++row, --ask_rows) AskForRow();
    for (int64_t i = 0; i < next_lines && next < next_end; ++i, next += 64) _mm_prefetch(next, _MM_HINT_T1);
  }
  // What writing it will read, and where it is written unless that is past the caches; what the next tile starts with.
  void AskForRow() const {
    const TileOutput& o = *output;
    if (o.sum != nullptr) AskFor(o.sum, o.sum_stride, DType::kF32, row, column);
    if (o.acc != nullptr) AskFor(o.acc, o.acc_stride, o.acc_dtype, row, column);
    if (o.start != nullptr && below > 0) AskFor(o.start, o.start_stride, DType::kF32, row + below, column);
    if (!past_caches && o.acc != o.out) AskFor(o.out, o.out_stride, o.out_dtype, row, column);
  }
};

// Where a tile's rows of A are: packed, or as they lie in the operand.
struct RowsOfA {
  const char* at;  // of the next step
  int64_t row_bytes, register_bytes, step_bytes;
};

// `steps` of a tile. kPacked: A is in the second-level cache. kKept: B stays in the first-level cache.
template <int R, int C, bool kPacked, bool kKept>
void AddSteps(RowsOfA& a, const char* b, int64_t steps, Beside& beside) {
  const int64_t b_line = kBLineBytes;
  for (int64_t s = 0; s < steps; ++s, a.at += a.step_bytes, b += kBStepBytes) {
    if constexpr (kPacked) {
      _tile_stream_loadd(4, a.at, a.row_bytes);
      if constexpr (R == 2) _tile_stream_loadd(5, a.at + a.register_bytes, a.row_bytes);
    } else {
      _tile_loadd(4, a.at, a.row_bytes);
      if constexpr (R == 2) _tile_loadd(5, a.at + a.register_bytes, a.row_bytes);
    }
    if constexpr (kKept) {
      _tile_loadd(6, b, b_line);
    } else {
      _tile_stream_loadd(6, b, b_line);
    }
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (R == 2) _tile_dpbf16ps(2, 5, 6);
    if constexpr (C == 2) {
      if constexpr (kKept) {
        _tile_loadd(7, b + kRowBytes, b_line);
      } else {
        _tile_stream_loadd(7, b + kRowBytes, b_line);
      }
      _tile_dpbf16ps(1, 4, 7);
      if constexpr (R == 2) _tile_dpbf16ps(3, 5, 7);
    }
    beside.Step();
  }
}

// R x C registers of sums: as many as the tile has rows and columns for. They end in unwritten.sums.
template <int R, int C>
void Tile(const char* panel_of_a, int64_t row_bytes, const BPanel& b, const Start& start, Beside& beside) {
  BeforeTileLoads();
  if (start.sums == nullptr) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    const float* const lower = start.sums + kRegisterRows * start.line / static_cast<int64_t>(sizeof(float));
    _tile_loadd(0, start.sums, start.line);
    if constexpr (C == 2) _tile_loadd(1, start.sums + 16, start.line);
    if constexpr (R == 2) _tile_loadd(2, lower, start.line);
    if constexpr (R == 2 && C == 2) _tile_loadd(3, lower + 16, start.line);
  }
  const char* panel = static_cast<const char*>(b.panel);
  const int64_t kept = b.steps < kStepsInCache ? b.steps : kStepsInCache;
  if (row_bytes == 0) {
    RowsOfA a = {panel_of_a, kRowBytes, kRegisterBytes, R * kRegisterBytes};
    AddSteps<R, C, true, true>(a, panel, kept, beside);
    AddSteps<R, C, true, false>(a, panel + kept * kBStepBytes, b.steps - kept, beside);
    AddSteps<R, C, true, false>(a, static_cast<const char*>(b.more), b.more_steps, beside);
  } else {
    RowsOfA a = {panel_of_a, row_bytes, kRegisterRows * row_bytes, kRowBytes};
    AddSteps<R, C, false, true>(a, panel, kept, beside);
    AddSteps<R, C, false, false>(a, panel + kept * kBStepBytes, b.steps - kept, beside);
  }
  unwritten.Write(kMr);
  float* const sums = unwritten.sums[0];
  _tile_stored(0, sums, kSumLine);
  if constexpr (C == 2) _tile_stored(1, sums + 16, kSumLine);
  if constexpr (R == 2) _tile_stored(2, sums + kRegisterRows * kNr, kSumLine);
  if constexpr (R == 2 && C == 2) _tile_stored(3, sums + kRegisterRows * kNr + 16, kSumLine);
}

void Strip(const TileStrip& s) {
  alignas(64) Sums around;
  const TileOutput& out = s.output;
  const int64_t steps = s.b.steps + s.b.more_steps > 0 ? s.b.steps + s.b.more_steps : 1;
  const int64_t tiles = (s.rows + s.height - 1) / s.height;
  const char* const next = static_cast<const char*>(s.next);
  Beside beside = {.rows = static_cast<int>((kMr + steps - 1) / steps),
                   .output = &out,
                   .column = s.column,
                   .past_caches = s.past_caches && InWholeLines(out, s.column, s.columns),
                   .next = next,
                   .next_end = next + s.next_bytes,
                   .next_lines = s.next_bytes / 64 / (steps * tiles) + 1};
  const char* a = static_cast<const char*>(s.a);
  for (int64_t i = 0; i < s.rows; i += s.height, a += s.a_panel_bytes) {
    const int rows = static_cast<int>(s.rows - i < s.height ? s.rows - i : s.height);
    beside.row = s.row + i;
    beside.ask_rows = rows;
    beside.below = i + s.height < s.rows ? s.height : 0;
    Start start;
    if (out.start != nullptr) start = StartOf(out, rows, s.columns, s.row + i, s.column, around);
    const auto tile =
        rows > kRegisterRows ? (s.columns > 16 ? Tile<2, 2> : Tile<2, 1>) : (s.columns > 16 ? Tile<1, 2> : Tile<1, 1>);
    tile(a, s.a_row_bytes, s.b, start, beside);
    unwritten.output = out;
    unwritten.row = s.row + i;
    unwritten.column = s.column;
    unwritten.rows = rows;
    unwritten.columns = s.columns;
    unwritten.written = 0;
    unwritten.past_caches = beside.past_caches;
  }
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

// Processors with these units have 2 MiB of second-level cache: a block of A has eight tiles of this depth. Sums of a
// deeper product are written to memory in between.
constexpr TileKernels kTable = {.mr = kMr,
                                .nr = kNr,
                                .k_step = kStep,
                                .element_size = 2,
                                .source_size = 2,
                                .pack_k = Pack<false>,
                                .pack_lines = Pack<true>,
                                .strip = Strip,
                                .row_step = kRegisterRows,
                                .depth_bytes = 4096,
                                .a_block_bytes = 1 << 20,
                                .enter = EnterTiles,
                                .leave = LeaveTiles,
                                .finish = Finish,
                                .rows_in_place = true,
                                .pair_panels = true,
                                .readers = &kFormatReadersAvx512};

}  // namespace
}  // namespace temper
