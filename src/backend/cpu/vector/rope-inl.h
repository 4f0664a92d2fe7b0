// The loops of rope: pairs (e, e + R/2), or interleaved (2 e, 2 e + 1), of the first R elements of each head; the
// table's row stays in L1 for all heads of a token.
#pragma once

#include <algorithm>

namespace temper {
namespace {

// Elements that do not turn, where y is not x.
template <class T>
void CopyRest(const T* x, int64_t R, int64_t E, T* y) {
  if (x != y) std::copy(x + R, x + E, y + R);
}

template <class T>
void Rope(const T* x, const float* table_TR, float sign, int64_t rows, int64_t heads, int64_t E, int64_t R, T* y) {
  const int64_t half = R / 2;
  for (int64_t t = 0; t < rows; ++t) {
    const float *const cos = table_TR + t * R, *const sin = cos + half;
    for (int64_t h = 0; h < heads; ++h) {
      const T *const x0 = x + (t * heads + h) * E, *const x1 = x0 + half;
      T *const y0 = y + (t * heads + h) * E, *const y1 = y0 + half;
      Sweep(half, [=](int64_t i, auto lanes) {
        const Floats c = Load(cos + i, lanes), s = Load(sin + i, lanes) * Set(sign);
        const Floats a = Load(x0 + i, lanes), b = Load(x1 + i, lanes);
        Store(y0 + i, Fma(a, c, Zero() - b * s), lanes);
        Store(y1 + i, Fma(b, c, a * s), lanes);
      });
      CopyRest(x0, R, E, y0);
    }
  }
}

// A pair (a, b) becomes (a c - b s, b c + a s): the vector times its cosines, plus the swapped one times its sines.
template <class T>
void RopeInterleaved(const T* x, const float* table_TR, float sign, int64_t rows, int64_t heads, int64_t E, int64_t R,
                     T* y) {
  const Floats signs = Set(sign) * AlternatingSigns();
  for (int64_t t = 0; t < rows; ++t) {
    const float* const row = table_TR + t * R;
    for (int64_t h = 0; h < heads; ++h) {
      const T* const from = x + (t * heads + h) * E;
      T* const to = y + (t * heads + h) * E;
      Sweep(R, [=](int64_t i, auto lanes) {
        const Floats v = Load(from + i, lanes), table = Load(row + i, lanes);
        Store(to + i, Fma(v, FirstOfPairs(table), SwapPairs(v) * (SecondOfPairs(table) * signs)), lanes);
      });
      CopyRest(from, R, E, to);
    }
  }
}

}  // namespace
}  // namespace temper
