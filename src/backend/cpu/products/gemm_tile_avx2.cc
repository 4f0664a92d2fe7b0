// Tiles of 6 x 16 in f32: 12 sums, two vectors of B and a broadcast of A in 16 registers. bf16 becomes f32 when packed.
#include <immintrin.h>

#include "backend/cpu/products/gemm_strip-inl.h"
#include "backend/cpu/products/gemm_tile.h"
#include "tensor/nf4_rows.h"

namespace temper {
namespace {

constexpr int kMr = 6, kNr = 16, kLanes = 8;

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

template <int M>
void Tile(const float* a, const float* b, int64_t steps, int columns, int64_t row, int64_t column,
          const TileOutput& o) {
  __m256 sum[M][2];
#pragma GCC unroll 6
  for (int i = 0; i < M; ++i) sum[i][0] = sum[i][1] = _mm256_setzero_ps();
  if (o.start != nullptr) {
#pragma GCC unroll 6
    for (int i = 0; i < M; ++i) {
      const int64_t at = (row + i) * o.start_stride + column;
      sum[i][0] = Load(o.start, at, DType::kF32, columns);
      if (columns > kLanes) sum[i][1] = Load(o.start, at + kLanes, DType::kF32, columns - kLanes);
    }
  }
  for (int64_t s = 0; s < steps; ++s) {
    const __m256 b0 = _mm256_loadu_ps(b), b1 = _mm256_loadu_ps(b + kLanes);
#pragma GCC unroll 6
    for (int i = 0; i < M; ++i) {
      const __m256 av = _mm256_broadcast_ss(a + i);
      sum[i][0] = _mm256_fmadd_ps(av, b0, sum[i][0]);
      sum[i][1] = _mm256_fmadd_ps(av, b1, sum[i][1]);
    }
    a += M;
    b += kNr;
  }
#pragma GCC unroll 6
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      const int n = columns - v * kLanes;
      if (n <= 0) break;
      const int64_t r = row + i, j = column + v * kLanes;
      __m256 x = sum[i][v];
      if (o.sum != nullptr) x = _mm256_add_ps(x, Load(o.sum, r * o.sum_stride + j, DType::kF32, n));
      x = _mm256_mul_ps(x, _mm256_set1_ps(o.scale));
      if (o.bias != nullptr) x = _mm256_add_ps(x, Load(o.bias, j, o.bias_dtype, n));
      if (o.acc != nullptr) x = _mm256_add_ps(x, Load(o.acc, r * o.acc_stride + j, o.acc_dtype, n));
      Store(o.out, r * o.out_stride + j, o.out_dtype, n, x);
    }
  }
}

template <int M>
void TileOfRows(const void* a, const BPanel& b, int rows, int columns, int64_t row, int64_t column,
                const TileOutput& output) {
  if constexpr (M > 1) {
    if (rows < M) return TileOfRows<M - 1>(a, b, rows, columns, row, column, output);
  }
  Tile<M>(static_cast<const float*>(a), static_cast<const float*>(b.panel), b.steps, columns, row, column, output);
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
        const int words = panel_width - v;
#pragma GCC unroll 8
        for (int w = 0; w < kLanes; ++w) {
          if (w < left) Store(out + (k + w) * panel_width + v, 0, DType::kF32, words, r[w]);
        }
      }
    }
    out += panel_bytes / 4;
  }
}

// Panels side by side are filled together: rows of the source are read in runs of kRun lines.
template <bool kBF16>
void PackLines(const void* source, int64_t stride, int64_t lines, int width, bool pad, int64_t depth, void* panels,
               int64_t panel_bytes) {
  constexpr DType kType = kBF16 ? DType::kBF16 : DType::kF32;
  constexpr int64_t kRun = 96;
  float* out = static_cast<float*>(panels);
  for (int64_t begin = 0; begin < lines; begin += kRun) {
    const int64_t end = begin + kRun < lines ? begin + kRun : lines;
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t first = begin; first < end; first += width) {
        const int count = lines - first < width ? static_cast<int>(lines - first) : width;
        const int panel_width = pad ? width : count;
        float* to = out + first / width * (panel_bytes / 4) + k * panel_width;
        for (int v = 0; v < panel_width; v += kLanes) {
          const __m256 x = v < count ? Load(source, k * stride + first + v, kType, count - v) : _mm256_setzero_ps();
          Store(to + v, 0, DType::kF32, panel_width - v, x);
        }
      }
    }
  }
}

void ReadInt8(const int8_t* q, float scale, int64_t n, uint16_t* out) {
  const auto read = [scale](const int8_t* from) {
    const __m256i x = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(x), _mm256_set1_ps(scale));
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(out, i, DType::kBF16, kLanes, read(q + i));
  if (i == n) return;
  int8_t rest[kLanes] = {};
  for (int64_t r = i; r < n; ++r) rest[r - i] = q[r];
  Store(out, i, DType::kBF16, static_cast<int>(n - i), read(rest));
}

// The 16 numbers that a block's elements can be become bf16 once; elements are looked up among their lower and upper
// bytes.
void ReadNf4(const uint8_t* indices, float absmax, int64_t n, uint16_t* out) {
  constexpr int64_t kAtOnce = 32;
  const auto numbers = [absmax](const float* from) {
    return Narrow(_mm256_mul_ps(_mm256_load_ps(from), _mm256_set1_ps(absmax)));
  };
  const __m128i first = numbers(kNf4Numbers), second = numbers(kNf4Numbers + kLanes);
  const __m128i byte = _mm_set1_epi16(0xFF), half = _mm_set1_epi8(0x0F);
  const __m128i lower = _mm_packus_epi16(_mm_and_si128(first, byte), _mm_and_si128(second, byte));
  const __m128i upper = _mm_packus_epi16(_mm_srli_epi16(first, 8), _mm_srli_epi16(second, 8));
  const auto read = [&](const uint8_t* from, uint16_t* to) {
    const __m128i pairs = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    const __m128i even = _mm_and_si128(_mm_srli_epi16(pairs, 4), half), odd = _mm_and_si128(pairs, half);
    __m128i* const o = reinterpret_cast<__m128i*>(to);
    const auto look_up = [&](__m128i index, __m128i* at) {
      const __m128i l = _mm_shuffle_epi8(lower, index), u = _mm_shuffle_epi8(upper, index);
      _mm_storeu_si128(at, _mm_unpacklo_epi8(l, u));
      _mm_storeu_si128(at + 1, _mm_unpackhi_epi8(l, u));
    };
    look_up(_mm_unpacklo_epi8(even, odd), o);
    look_up(_mm_unpackhi_epi8(even, odd), o + 2);
  };
  int64_t i = 0;
  for (; i + kAtOnce <= n; i += kAtOnce) read(indices + i / 2, out + i);
  if (i == n) return;
  uint8_t rest[kAtOnce / 2] = {};
  uint16_t numbers_of_rest[kAtOnce];
  for (int64_t r = i; r < n; r += 2) rest[(r - i) / 2] = indices[r / 2];
  read(rest, numbers_of_rest);
  for (int64_t r = i; r < n; ++r) out[r] = numbers_of_rest[r - i];
}

}  // namespace

const TileKernels kTilesF32Avx2 = {
    kMr, kNr, 1, 4, 4, PackK<false>, PackLines<false>, TilesInTurn<kNr, TileOfRows<kMr>>};
const TileKernels kTilesBF16AsF32Avx2 = {.mr = kMr,
                                         .nr = kNr,
                                         .k_step = 1,
                                         .element_size = 4,
                                         .source_size = 2,
                                         .pack_k = PackK<true>,
                                         .pack_lines = PackLines<true>,
                                         .strip = TilesInTurn<kNr, TileOfRows<kMr>>,
                                         .read_int8 = ReadInt8,
                                         .read_nf4 = ReadNf4};

}  // namespace temper
