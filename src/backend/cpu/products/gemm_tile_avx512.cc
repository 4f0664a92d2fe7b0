// Tiles of 14 x 32: 28 sums, two vectors of B and one broadcast of A fill the 32 registers, and each step's 16 loads
// hide behind its 28 multiply-adds (two of each per cycle).
#include "backend/cpu/products/gemm_strip-inl.h"
#include "backend/cpu/products/gemm_tile_avx512-inl.h"

namespace temper {
namespace {

constexpr int kMr = 14, kNr = 32;
// B is read from the second-level cache; steps ahead of use at which it is asked for.
constexpr int64_t kPrefetchSteps = 12;

// What the rows of a tile, V vectors wide, are added to or overwrite comes from memory: asks for it while they are
// summed.
template <int V>
void AskForOutput(int rows, int64_t row, int64_t column, const TileOutput& output) {
  const int64_t out_size = output.out_dtype == DType::kF32 ? 4 : 2, acc_size = output.acc_dtype == DType::kF32 ? 4 : 2;
  for (int i = 0; i < rows; ++i) {
    const char* out = static_cast<const char*>(output.out) + ((row + i) * output.out_stride + column) * out_size;
    __builtin_prefetch(out, 1);
    __builtin_prefetch(out + 16 * V * out_size - 1, 1);
    if (output.acc != nullptr && output.acc != output.out) {
      const char* acc = static_cast<const char*>(output.acc) + ((row + i) * output.acc_stride + column) * acc_size;
      _mm_prefetch(acc, _MM_HINT_T0);
      _mm_prefetch(acc + 16 * V * acc_size - 1, _MM_HINT_T0);
    }
  }
}

template <class Math, int M, int V>
void Tile(const void* a_panel, BPanel b_panel, int columns, int64_t row, int64_t column, const TileOutput& output) {
  const int* a = static_cast<const int*>(a_panel);
  __mmask16 mask[V];
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
    mask[v] = WordMask(columns - 16 * v);
  }
  __m512 sum[M][V];
#pragma GCC unroll 14
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) sum[i][v] = _mm512_setzero_ps();
  }
  if (output.start != nullptr) {
#pragma GCC unroll 14
    for (int i = 0; i < M; ++i) {
      const float* start = output.start + (row + i) * output.start_stride + column;
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) sum[i][v] = _mm512_maskz_loadu_ps(mask[v], start + 16 * v);
    }
  }
  AskForOutput<V>(M, row, column, output);
  while (true) {
    const __m512i* b = static_cast<const __m512i*>(b_panel.panel);
    for (int64_t s = 0; s < b_panel.steps; ++s) {
      __m512i bv[V];
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        bv[v] = _mm512_load_si512(b + v);
        _mm_prefetch(reinterpret_cast<const char*>(b + v + 2 * kPrefetchSteps), _MM_HINT_T0);
      }
#pragma GCC unroll 14
      for (int i = 0; i < M; ++i) {
        const __m512i av = _mm512_set1_epi32(a[i]);
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) sum[i][v] = Math::MultiplyAdd(sum[i][v], av, bv[v]);
      }
      a += M;
      b += 2;
    }
    if (b_panel.more_steps == 0) break;
    b_panel = {.panel = b_panel.more, .steps = b_panel.more_steps};
  }
#pragma GCC unroll 14
  for (int i = 0; i < M; ++i) WriteRow<Math, V>(sum[i], mask, row + i, column, output);
}

template <class Math, int M>
void TileOfRows(const void* a, const BPanel& b, int rows, int columns, int64_t row, int64_t column,
                const TileOutput& output) {
  if constexpr (M > 1) {
    if (rows < M) return TileOfRows<Math, M - 1>(a, b, rows, columns, row, column, output);
  }
  if (columns > 16) {
    Tile<Math, M, 2>(a, b, columns, row, column, output);
  } else {
    Tile<Math, M, 1>(a, b, columns, row, column, output);
  }
}

// A vector of 16 words (k_step elements each) of one line, from element k on; `left` elements exist.
struct FromWords {  // f32 into f32 panels (1 element a word), bf16 into bf16 panels (2)
  template <int kPerWord>
  static __m512i LoadWords(const char* p, int64_t left) {
    if (left >= 16 * kPerWord) return _mm512_loadu_si512(p);
    if (left <= 0) return _mm512_setzero_si512();
    if constexpr (kPerWord == 1) return _mm512_maskz_loadu_epi32(WordMask(left), p);
    return _mm512_maskz_loadu_epi16(static_cast<__mmask32>((1ull << left) - 1), p);
  }
};
struct FromBF16 {  // bf16 into f32 panels
  template <int kPerWord>
  static __m512i LoadWords(const char* p, int64_t left) {
    if (left <= 0) return _mm512_setzero_si512();
    const __mmask16 mask = WordMask(left);
    return _mm512_castps_si512(Widen(_mm256_maskz_loadu_epi16(mask, p)));
  }
};

// kSize: bytes of a source element. kStep elements make a word of the panel. Width: up to 16, or 32.
template <class From, int kSize, int kStep>
void PackPanelK(const void* source, int64_t stride, int lines, int width, int64_t depth, int* out) {
  const int64_t steps = (depth + kStep - 1) / kStep;
  for (int64_t s = 0; s < steps; s += 16) {
    const int64_t k = s * kStep;
    const int count = steps - s < 16 ? static_cast<int>(steps - s) : 16;
    for (int first = 0; first < width; first += 16) {
      const char* p = static_cast<const char*>(source) + (first * stride + k) * kSize;
      __m512i r[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        r[i] = first + i < lines ? From::template LoadWords<kStep>(p + i * stride * kSize, depth - k)
                                 : _mm512_setzero_si512();
      }
      Transpose16(r);
      int* to = out + s * width + first;
      // Whole vectors: what goes beyond a width below 16 is overwritten by the next step, or is slack.
      if (count == 16) {
#pragma GCC unroll 16
        for (int w = 0; w < 16; ++w) _mm512_storeu_si512(to + w * width, r[w]);
      } else {
#pragma GCC unroll 16
        for (int w = 0; w < 16; ++w) {
          if (w < count) _mm512_storeu_si512(to + w * width, r[w]);
        }
      }
    }
  }
}

template <class From, int kSize, int kStep>
void PackK(const void* source, int64_t stride, int64_t lines, int width, bool pad, int64_t depth, void* panels,
           int64_t panel_bytes) {
  int* out = static_cast<int*>(panels);
  for (int64_t first = 0; first < lines; first += width) {
    const int count = lines - first < width ? static_cast<int>(lines - first) : width;
    const int panel_width = pad ? width : count;
    PackPanelK<From, kSize, kStep>(static_cast<const char*>(source) + first * stride * kSize, stride, count,
                                   panel_width, depth, out);
    out += panel_bytes / 4;
  }
}

// Lines side by side: this many panels are filled together, so that the source is read in runs as long as their lines
// are wide. More of them would not find a line each in the first-level cache, nor a page each in its TLB.
constexpr int64_t kPanelsAtOnce = 48;

// Calls step(k, first line, lines, width, words) for each k and panel.
template <int kStep, class Step>
inline void ForPanels(int64_t lines, int width, bool pad, int64_t depth, void* panels, int64_t panel_bytes,
                      const Step& step) {
  for (int64_t begin = 0; begin < lines; begin += kPanelsAtOnce * width) {
    const int64_t end = lines - begin < kPanelsAtOnce * width ? lines : begin + kPanelsAtOnce * width;
    char* const panel = static_cast<char*>(panels) + begin / width * panel_bytes;
    const int rest = static_cast<int>((end - begin) % width);  // lines of a last, shorter panel
    for (int64_t k = 0; k < depth; k += kStep) {
      int* out = reinterpret_cast<int*>(panel) + k / kStep * width;
      int64_t first = begin;
      for (; first + width <= end; first += width) {
        step(k, first, width, width, out);
        out += panel_bytes / 4;
      }
      if (rest > 0) step(k, first, rest, pad ? width : rest, pad ? out : out - k / kStep * (width - rest));
    }
  }
}

// bf16: a step interleaves rows k and k + 1.
void PackLinesPairs(const void* source, int64_t stride, int64_t lines, int width, bool pad, int64_t depth, void* panels,
                    int64_t panel_bytes) {
  const uint16_t* in = static_cast<const uint16_t*>(source);
  const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8,  //
                                       39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  ForPanels<2>(lines, width, pad, depth, panels, panel_bytes,
               [&](int64_t k, int64_t first, int count, int words, int* out) {
                 const __mmask32 mask = count >= 32 ? 0xFFFFFFFF : static_cast<__mmask32>((1ull << count) - 1);
                 const uint16_t* p = in + k * stride + first;
                 const __m512i even = _mm512_maskz_loadu_epi16(mask, p);
                 const __m512i odd = _mm512_maskz_loadu_epi16(k + 1 < depth ? mask : 0, p + stride);
                 _mm512_storeu_si512(out, _mm512_permutex2var_epi16(even, low, odd));
                 if (words > 16) _mm512_storeu_si512(out + 16, _mm512_permutex2var_epi16(even, high, odd));
               });
}

template <bool kFromBF16>
void PackLinesF32(const void* source, int64_t stride, int64_t lines, int width, bool pad, int64_t depth, void* panels,
                  int64_t panel_bytes) {
  ForPanels<1>(
      lines, width, pad, depth, panels, panel_bytes, [&](int64_t k, int64_t first, int count, int words, int* out) {
        for (int v = 0; v < words; v += 16) {
          const __mmask16 mask = WordMask(count - v);
          const int64_t i = k * stride + first + v;
          const __m512 x = kFromBF16 ? Widen(_mm256_maskz_loadu_epi16(mask, static_cast<const uint16_t*>(source) + i))
                                     : _mm512_maskz_loadu_ps(mask, static_cast<const float*>(source) + i);
          _mm512_storeu_ps(reinterpret_cast<float*>(out) + v, x);
        }
      });
}

}  // namespace

const TileKernels kTilesF32Avx512 = {.mr = kMr,
                                     .nr = kNr,
                                     .k_step = 1,
                                     .element_size = 4,
                                     .source_size = 4,
                                     .pack_k = PackK<FromWords, 4, 1>,
                                     .pack_lines = PackLinesF32<false>,
                                     .strip = TilesInTurn<kNr, TileOfRows<F32, kMr>>};
const TileKernels kTilesBF16Avx512 = {.mr = kMr,
                                      .nr = kNr,
                                      .k_step = 2,
                                      .element_size = 2,
                                      .source_size = 2,
                                      .pack_k = PackK<FromWords, 2, 2>,
                                      .pack_lines = PackLinesPairs,
                                      .strip = TilesInTurn<kNr, TileOfRows<BF16Pairs, kMr>>,
                                      .pair_panels = true,
                                      .readers = &kFormatReadersAvx512};
const TileKernels kTilesBF16AsF32Avx512 = {.mr = kMr,
                                           .nr = kNr,
                                           .k_step = 1,
                                           .element_size = 4,
                                           .source_size = 2,
                                           .pack_k = PackK<FromBF16, 2, 1>,
                                           .pack_lines = PackLinesF32<true>,
                                           .strip = TilesInTurn<kNr, TileOfRows<F32, kMr>>,
                                           .readers = &kFormatReadersAvx512};

}  // namespace temper
