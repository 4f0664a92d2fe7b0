// The loop of rope: pairs (e, e + E/2) of each head; the table's row stays in L1 for all heads of a token.
#pragma once

namespace temper {
namespace {

template <class T>
void Rope(const T* x, const float* table_TE, float sign, int64_t rows, int64_t heads, int64_t E, T* y) {
  const int64_t half = E / 2;
  for (int64_t t = 0; t < rows; ++t) {
    const float *const cos = table_TE + t * E, *const sin = cos + half;
    for (int64_t h = 0; h < heads; ++h) {
      const T *const x0 = x + (t * heads + h) * E, *const x1 = x0 + half;
      T *const y0 = y + (t * heads + h) * E, *const y1 = y0 + half;
      Sweep(half, [=](int64_t i, auto lanes) {
        const Floats c = Load(cos + i, lanes), s = Load(sin + i, lanes) * Set(sign);
        const Floats a = Load(x0 + i, lanes), b = Load(x1 + i, lanes);
        Store(y0 + i, Fma(a, c, Zero() - b * s), lanes);
        Store(y1 + i, Fma(b, c, a * s), lanes);
      });
    }
  }
}

}  // namespace
}  // namespace temper
