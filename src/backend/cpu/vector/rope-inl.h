// The loops of rope: pairs (e, e + R/2), or interleaved (2 e, 2 e + 1), of the R elements of each head that turn; the
// table's row stays in L1 for all heads of a token.
#pragma once

#include <algorithm>

namespace temper {
namespace {

// Elements that do not turn, where y is not x.
template <class T>
void CopyRest(const T* x, const RotaryHeads& h, T* y) {
  if (x == y) return;
  std::copy(x, x + h.first, y);
  std::copy(x + h.first + h.turning, x + h.head_dim, y + h.first + h.turning);
}

template <class T>
void Rope(const T* x, const float* table_TR, float sign, int64_t rows, const RotaryHeads& of, T* y) {
  const int64_t half = of.turning / 2;
  for (int64_t t = 0; t < rows; ++t) {
    const float *const cos = table_TR + t * of.turning, *const sin = cos + half;
    for (int64_t h = 0; h < of.heads; ++h) {
      const int64_t head = (t * of.heads + h) * of.head_dim;
      const T *const x0 = x + head + of.first, *const x1 = x0 + half;
      T *const y0 = y + head + of.first, *const y1 = y0 + half;
      Sweep(half, [=](int64_t i, auto lanes) {
        const Floats c = Load(cos + i, lanes), s = Load(sin + i, lanes) * Set(sign);
        const Floats a = Load(x0 + i, lanes), b = Load(x1 + i, lanes);
        Store(y0 + i, Fma(a, c, Zero() - b * s), lanes);
        Store(y1 + i, Fma(b, c, a * s), lanes);
      });
      CopyRest(x + head, of, y + head);
    }
  }
}

// A pair (a, b) becomes (a c - b s, b c + a s): the vector times its cosines, plus the swapped one times its sines.
template <class T>
void RopeInterleaved(const T* x, const float* table_TR, float sign, int64_t rows, const RotaryHeads& of, T* y) {
  const Floats signs = Set(sign) * AlternatingSigns();
  for (int64_t t = 0; t < rows; ++t) {
    const float* const row = table_TR + t * of.turning;
    for (int64_t h = 0; h < of.heads; ++h) {
      const int64_t head = (t * of.heads + h) * of.head_dim;
      const T* const from = x + head + of.first;
      T* const to = y + head + of.first;
      Sweep(of.turning, [=](int64_t i, auto lanes) {
        const Floats v = Load(from + i, lanes), table = Load(row + i, lanes);
        Store(to + i, Fma(v, FirstOfPairs(table), SwapPairs(v) * (SecondOfPairs(table) * signs)), lanes);
      });
      CopyRest(x + head, of, y + head);
    }
  }
}

}  // namespace
}  // namespace temper
