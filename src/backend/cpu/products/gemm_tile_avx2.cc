// Tiles of 6 x 16 in f32: 12 sums, two vectors of B and a broadcast of A in 16 registers. bf16 becomes f32 when packed.
#include <immintrin.h>

#include <algorithm>

#include "backend/cpu/formats/format_readers.h"
#include "backend/cpu/products/gemm_tile.h"

namespace temper {
namespace {

constexpr int kMr = 6, kNr = 16, kLanes = 8;
// Of A beside a panel of B: processors with AVX2 and no more have second-level caches from 256 KiB on.
constexpr int64_t kABlockBytes = 192 << 10;

inline __m256 Widen(__m128i bf16) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16));
}

// To bf16, nearest even, NaN kept quiet.
inline __m128i Narrow(__m256 x) {
  const __m256i u = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF))), 16);
  const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x40));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i r = _mm256_blendv_epi8(rounded, quiet, nan);
  const __m256i packed = _mm256_packus_epi32(r, r);
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
}

// Lanes i < n.
inline __m256i Mask(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// The first n of 8 elements at p[i]; the rest are zero and not touched.
inline __m256 Load(const void* p, int64_t i, DType dtype, int n) {
  if (dtype == DType::kF32) {
    const float* f = static_cast<const float*>(p) + i;
    return n >= kLanes ? _mm256_loadu_ps(f) : _mm256_maskload_ps(f, Mask(n));
  }
  const uint16_t* h = static_cast<const uint16_t*>(p) + i;
  if (n >= kLanes) return Widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(h)));
  alignas(16) uint16_t few[kLanes] = {};
  for (int l = 0; l < n; ++l) few[l] = h[l];
  return Widen(_mm_load_si128(reinterpret_cast<const __m128i*>(few)));
}

inline void Store(void* p, int64_t i, DType dtype, int n, __m256 x) {
  if (dtype == DType::kF32) {
    float* f = static_cast<float*>(p) + i;
    if (n >= kLanes) {
      _mm256_storeu_ps(f, x);
    } else {
      _mm256_maskstore_ps(f, Mask(n), x);
    }
    return;
  }
  uint16_t* h = static_cast<uint16_t*>(p) + i;
  if (n >= kLanes) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(h), Narrow(x));
    return;
  }
  alignas(16) uint16_t few[kLanes];
  _mm_store_si128(reinterpret_cast<__m128i*>(few), Narrow(x));
  for (int l = 0; l < n; ++l) h[l] = few[l];
}

// The first n of 8 sums, of one row.
inline __m256 Complete(__m256 x, int64_t row, int64_t column, int n, const TileOutput& o) {
  if (o.sum != nullptr) x = _mm256_add_ps(x, Load(o.sum, row * o.sum_stride + column, DType::kF32, n));
  x = _mm256_mul_ps(x, _mm256_set1_ps(o.scale));
  if (o.bias != nullptr) x = _mm256_add_ps(x, Load(o.bias, column, o.bias_dtype, n));
  if (o.acc != nullptr) x = _mm256_add_ps(x, Load(o.acc, row * o.acc_stride + column, o.acc_dtype, n));
  return x;
}

// A tile of fewer than kNr columns, from its sums.
__attribute__((noinline)) void WritePart(const float* sums, int rows, int columns, int64_t row, int64_t column,
                                         const TileOutput& o) {
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; j += kLanes) {
      const __m256 x = Complete(_mm256_load_ps(sums + i * kNr + j), row + i, column + j, columns - j, o);
      Store(o.out, (row + i) * o.out_stride + column + j, o.out_dtype, columns - j, x);
    }
  }
}

// All is read before anything is written: a processor takes rows whose distance is a multiple of 4 KiB for one address,
// and holds a read back until the write before it is done.
template <int M>
inline __attribute__((always_inline)) void WriteTile(__m256 (&sum)[M][2], int columns, int64_t row, int64_t column,
                                                     const TileOutput& o) {
  if (columns < kNr) {
    alignas(32) float sums[M * kNr];
#pragma GCC unroll 6
    for (int i = 0; i < M; ++i) {
      _mm256_store_ps(sums + i * kNr, sum[i][0]);
      _mm256_store_ps(sums + i * kNr + kLanes, sum[i][1]);
    }
    return WritePart(sums, M, columns, row, column, o);
  }
  if (o.sum != nullptr || o.scale != 1 || o.bias != nullptr || o.acc != nullptr) {
#pragma GCC unroll 6
    for (int i = 0; i < M; ++i) {
      sum[i][0] = Complete(sum[i][0], row + i, column, kLanes, o);
      sum[i][1] = Complete(sum[i][1], row + i, column + kLanes, kLanes, o);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < M; ++i) {
    Store(o.out, (row + i) * o.out_stride + column, o.out_dtype, kLanes, sum[i][0]);
    Store(o.out, (row + i) * o.out_stride + column + kLanes, o.out_dtype, kLanes, sum[i][1]);
  }
}

// What a tile adds to or overwrites comes from memory: asks for it while it is summed.
inline void AskForOutput(int rows, int64_t row, int64_t column, const TileOutput& o) {
  const int64_t out_size = o.out_dtype == DType::kF32 ? 4 : 2, acc_size = o.acc_dtype == DType::kF32 ? 4 : 2;
  const auto ask = [](const void* matrix, int64_t at, int64_t size) {
    const char* const p = static_cast<const char*>(matrix) + at * size;
    _mm_prefetch(p, _MM_HINT_T0);
    _mm_prefetch(p + kNr * size - 1, _MM_HINT_T0);
  };
  for (int64_t r = row; r < row + rows; ++r) {
    ask(o.out, r * o.out_stride + column, out_size);
    if (o.acc != nullptr && o.acc != o.out) ask(o.acc, r * o.acc_stride + column, acc_size);
    if (o.sum != nullptr && o.sum != o.out) ask(o.sum, r * o.sum_stride + column, 4);
  }
}

// Rows of A, kSteps of k at a time, of which At(u, i) gives step u's element of row i in all lanes; Last(i) gives what
// single steps behind them take. In a panel M lines lie side by side.
template <int M>
struct PanelRows {
  static constexpr int kSteps = 1;
  PanelRows(const void* a, int64_t) : at(static_cast<const float*>(a)) {}
  __m256 At(int, int i) const { return _mm256_broadcast_ss(at + i); }
  __m256 Last(int i) const { return At(0, i); }
  void Advance(int steps) { at += steps * M; }
  const float* at;
};

// Rows where they lie.
template <int M>
struct RowsInPlaceF32 {
  static constexpr int kSteps = 1;
  RowsInPlaceF32(const void* a, int64_t row_bytes) {
    for (int i = 0; i < M; ++i) row[i] = reinterpret_cast<const float*>(static_cast<const char*>(a) + i * row_bytes);
  }
  __m256 At(int, int i) const { return _mm256_broadcast_ss(row[i] + k); }
  __m256 Last(int i) const { return At(0, i); }
  void Advance(int steps) { k += steps; }
  const float* row[M];
  int64_t k = 0;
};

// bf16 where they lie, in pairs, of which each becomes f32 by a shift or a mask.
template <int M>
struct RowsInPlaceBF16 {
  static constexpr int kSteps = 2;
  RowsInPlaceBF16(const void* a, int64_t row_bytes) {
    for (int i = 0; i < M; ++i) row[i] = reinterpret_cast<const uint16_t*>(static_cast<const char*>(a) + i * row_bytes);
  }
  __m256 At(int u, int i) const {
    const __m256 pair = _mm256_broadcast_ss(reinterpret_cast<const float*>(row[i] + k));
    if (u == 0) return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pair), 16));
    return _mm256_and_ps(pair, _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(0xFFFF0000))));
  }
  __m256 Last(int i) const {
    return _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(uint32_t{row[i][k]} << 16)));
  }
  void Advance(int steps) { k += steps; }
  const uint16_t* row[M];
  int64_t k = 0;
};

// Lines of A where they lie, side by side, step_bytes from one k to the next.
template <int M>
struct LinesInPlaceF32 {
  static constexpr int kSteps = 1;
  LinesInPlaceF32(const void* a, int64_t step_bytes) : at(static_cast<const float*>(a)), stride(step_bytes / 4) {}
  __m256 At(int, int i) const { return _mm256_broadcast_ss(at + i); }
  __m256 Last(int i) const { return At(0, i); }
  void Advance(int steps) { at += steps * stride; }
  const float* at;
  int64_t stride;
};
template <int M>
struct LinesInPlaceBF16 {
  static constexpr int kSteps = 1;
  LinesInPlaceBF16(const void* a, int64_t step_bytes) : at(static_cast<const int16_t*>(a)), stride(step_bytes / 2) {}
  __m256 At(int, int i) const { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_set1_epi16(at[i]), 16)); }
  __m256 Last(int i) const { return At(0, i); }
  void Advance(int steps) { at += steps * stride; }
  const int16_t* at;
  int64_t stride;
};

// Steps of B: of a panel, or of kNr lines where they lie.
struct PanelColumns {
  PanelColumns(const void* b, int64_t) : at(static_cast<const float*>(b)) {}
  __m256 At(int v) const { return _mm256_loadu_ps(at + v * kLanes); }
  void Advance() { at += kNr; }
  const float* at;
};
template <DType kType>
struct ColumnsInPlace {
  ColumnsInPlace(const void* b, int64_t step_bytes) : at(static_cast<const char*>(b)), stride(step_bytes) {}
  __m256 At(int v) const { return Load(at, v * kLanes, kType, kLanes); }
  void Advance() { at += stride; }
  const char* at;
  int64_t stride;
};

template <int M, class Rows, class Columns>
void Tile(Rows a, Columns b, int64_t steps, int columns, int64_t row, int64_t column, const TileOutput& o) {
  __m256 sum[M][2];
#pragma GCC unroll 6
  for (int i = 0; i < M; ++i) sum[i][0] = sum[i][1] = _mm256_setzero_ps();
  if (o.start != nullptr && columns == kNr) {
#pragma GCC unroll 6
    for (int i = 0; i < M; ++i) {
      const float* const start = o.start + (row + i) * o.start_stride + column;
      sum[i][0] = _mm256_loadu_ps(start);
      sum[i][1] = _mm256_loadu_ps(start + kLanes);
    }
  } else if (o.start != nullptr) {
    alignas(32) float starts[M * kNr] = {};
    for (int i = 0; i < M; ++i) std::copy_n(o.start + (row + i) * o.start_stride + column, columns, starts + i * kNr);
#pragma GCC unroll 6
    for (int i = 0; i < M; ++i) {
      sum[i][0] = _mm256_load_ps(starts + i * kNr);
      sum[i][1] = _mm256_load_ps(starts + i * kNr + kLanes);
    }
  }
  AskForOutput(M, row, column, o);
  int64_t s = 0;
  for (; s + Rows::kSteps <= steps; s += Rows::kSteps) {
#pragma GCC unroll 2
    for (int u = 0; u < Rows::kSteps; ++u) {
      const __m256 b0 = b.At(0), b1 = b.At(1);
#pragma GCC unroll 6
      for (int i = 0; i < M; ++i) {
        const __m256 av = a.At(u, i);
        sum[i][0] = _mm256_fmadd_ps(av, b0, sum[i][0]);
        sum[i][1] = _mm256_fmadd_ps(av, b1, sum[i][1]);
      }
      b.Advance();
      // Else GCC loads for both steps at once, and has no registers for all sums. (It has none either where steps of a
      // panel are unrolled, which gains nothing.)
      asm volatile("" ::: "memory");
    }
    a.Advance(Rows::kSteps);
  }
  for (; Rows::kSteps > 1 && s < steps; ++s) {
    const __m256 b0 = b.At(0), b1 = b.At(1);
#pragma GCC unroll 6
    for (int i = 0; i < M; ++i) {
      const __m256 av = a.Last(i);
      sum[i][0] = _mm256_fmadd_ps(av, b0, sum[i][0]);
      sum[i][1] = _mm256_fmadd_ps(av, b1, sum[i][1]);
    }
    b.Advance();
    a.Advance(1);
  }
  WriteTile<M>(sum, columns, row, column, o);
}

// Tiles of a strip. a_bytes, b_bytes: between rows or steps of an operand that is read where it lies.
template <template <int> class Rows, class Columns, int M = kMr>
void TileOfRows(const TileStrip& s, const void* a, int64_t a_bytes, int64_t b_bytes, int rows, int64_t row) {
  if constexpr (M > 1) {
    if (rows < M) return TileOfRows<Rows, Columns, M - 1>(s, a, a_bytes, b_bytes, rows, row);
  }
  Tile<M>(Rows<M>(a, a_bytes), Columns(s.b.panel, b_bytes), s.b.steps, s.columns, row, s.column, s.output);
}

template <template <int> class Rows, class Columns>
void TilesInTurn(const TileStrip& s, int64_t a_bytes, int64_t b_bytes) {
  const char* a = static_cast<const char*>(s.a);
  for (int64_t i = 0; i < s.rows; i += s.height, a += s.a_panel_bytes) {
    const int rows = static_cast<int>(s.rows - i < s.height ? s.rows - i : s.height);
    TileOfRows<Rows, Columns>(s, a, a_bytes, b_bytes, rows, s.row + i);
  }
}

template <DType kType, template <int> class RowsInPlace, template <int> class LinesInPlace>
void Strip(const TileStrip& s) {
  if (s.a_row_bytes > 0) return TilesInTurn<RowsInPlace, PanelColumns>(s, s.a_row_bytes, 0);
  if (s.a_step_bytes > 0) return TilesInTurn<LinesInPlace, PanelColumns>(s, s.a_step_bytes, 0);
  if (s.b_step_bytes > 0) return TilesInTurn<PanelRows, ColumnsInPlace<kType>>(s, 0, s.b_step_bytes);
  TilesInTurn<PanelRows, PanelColumns>(s, 0, 0);
}

// In: row i holds words 0..7 of line i. Out: row w holds word w of lines 0..7.
inline void Transpose8(__m256 (&r)[kLanes]) {
  __m256 t[kLanes];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
    t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) r[i] = t[i];
}

// Vectors are stored whole: what goes beyond a panel's width is overwritten by its next step, or is slack.
inline void StoreWhole(float* to, __m256 x) {
  _mm256_storeu_ps(to, x);
}

template <bool kBF16>
void PackK(const void* source, int64_t stride, int64_t lines, int width, bool pad, int64_t depth, void* panels,
           int64_t panel_bytes) {
  constexpr DType kType = kBF16 ? DType::kBF16 : DType::kF32;
  float* out = static_cast<float*>(panels);
  for (int64_t first = 0; first < lines; first += width) {
    const int count = lines - first < width ? static_cast<int>(lines - first) : width;
    const int panel_width = pad ? width : count;
    for (int64_t k = 0; k < depth; k += kLanes) {
      const int left = depth - k < kLanes ? static_cast<int>(depth - k) : kLanes;
      for (int v = 0; v < panel_width; v += kLanes) {
        __m256 r[kLanes];
#pragma GCC unroll 8
        for (int i = 0; i < kLanes; ++i) {
          r[i] = v + i < count ? Load(source, (first + v + i) * stride + k, kType, left) : _mm256_setzero_ps();
        }
        Transpose8(r);
#pragma GCC unroll 8
        for (int w = 0; w < kLanes; ++w) {
          if (w < left) StoreWhole(out + (k + w) * panel_width + v, r[w]);
        }
      }
    }
    out += panel_bytes / 4;
  }
}

// Panels side by side are filled together, so that rows of the source are read in runs of this many lines: 48 panels of
// A, 18 of B. (Measured on a Zen 3, where asking for later rows gained nothing.)
constexpr int64_t kRun = 48 * kMr;

template <bool kBF16>
void PackLines(const void* source, int64_t stride, int64_t lines, int width, bool pad, int64_t depth, void* panels,
               int64_t panel_bytes) {
  constexpr DType kType = kBF16 ? DType::kBF16 : DType::kF32;
  float* out = static_cast<float*>(panels);
  const int64_t panel_floats = panel_bytes / 4;
  const int64_t at_once = kRun / width * width;
  for (int64_t begin = 0; begin < lines; begin += at_once) {
    const int64_t end = begin + at_once < lines ? begin + at_once : lines;
    for (int64_t k = 0; k < depth; ++k) {
      float* to = out + begin / width * panel_floats + k * width;
      int64_t first = begin;
      if (width <= kLanes) {
        for (; first + kLanes <= end; first += width, to += panel_floats) {
          StoreWhole(to, Load(source, k * stride + first, kType, kLanes));
        }
      }
      for (; first < end; first += width, to += panel_floats) {
        const int count = lines - first < width ? static_cast<int>(lines - first) : width;
        const int panel_width = pad ? width : count;
        float* const step = to - k * (width - panel_width);
        for (int v = 0; v < panel_width; v += kLanes) {
          const int64_t there = std::clamp<int64_t>(lines - first - v, 0, kLanes);  // of the row
          StoreWhole(step + v, Load(source, k * stride + first + v, kType, static_cast<int>(there)));
        }
      }
    }
  }
}

}  // namespace

const TileKernels kTilesF32Avx2 = {.mr = kMr,
                                   .nr = kNr,
                                   .k_step = 1,
                                   .element_size = 4,
                                   .source_size = 4,
                                   .pack_k = PackK<false>,
                                   .pack_lines = PackLines<false>,
                                   .strip = Strip<DType::kF32, RowsInPlaceF32, LinesInPlaceF32>,
                                   .a_block_bytes = kABlockBytes,
                                   .rows_in_place = true,
                                   .lines_in_place = true};
const TileKernels kTilesBF16AsF32Avx2 = {.mr = kMr,
                                         .nr = kNr,
                                         .k_step = 1,
                                         .element_size = 4,
                                         .source_size = 2,
                                         .pack_k = PackK<true>,
                                         .pack_lines = PackLines<true>,
                                         .strip = Strip<DType::kBF16, RowsInPlaceBF16, LinesInPlaceBF16>,
                                         .a_block_bytes = kABlockBytes,
                                         .rows_in_place = true,
                                         .lines_in_place = true,
                                         .readers = &kFormatReadersAvx2};

}  // namespace temper
