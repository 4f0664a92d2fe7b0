// The loops of dropout, noise and stochastic rounding: Philox4x32-10 (base/philox.h) on as many counters as there are
// lanes, hence 4 kLanes draws at a time.
#pragma once

#include "base/philox.h"  // constants

namespace temper {
namespace {

// Draws of counter blocks first, first + 1, ... in the order of elements: draws[0] has those of elements 4 first + 0
// ... REQUIRES: first is a multiple of kLanes, so that adding a lane number carries into no upper word.
TEMPER_VEC void DrawGroup(const Draws& key, uint64_t first, Ints draws[4]) {
  Ints c0 = AddInts(SetInt(static_cast<uint32_t>(first)), InterleavedLanes());
  Ints c1 = SetInt(static_cast<uint32_t>(first >> 32));
  Ints c2 = SetInt(key.step0), c3 = SetInt(key.step1);
  const Ints m0 = SetInt(kPhiloxMultiplier0), m1 = SetInt(kPhiloxMultiplier1);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    Ints high0, high1;
    const Ints low0 = MultiplyWide(c0, m0, &high0), low1 = MultiplyWide(c2, m1, &high1);
    c0 = XorInts(high1, c1, SetInt(key.keys[round][0]));
    c2 = XorInts(high0, c3, SetInt(key.keys[round][1]));
    c1 = low1;
    c3 = low0;
  }
  draws[0] = c0;
  draws[1] = c1;
  draws[2] = c2;
  draws[3] = c3;
  Interleave(draws);
}

// store(y, draw, x, lanes) for elements [begin, begin + n).
template <class T, class Y, class StoreOne>
TEMPER_VEC void ForDraws(const Draws& d, const T* x, Y* y, int64_t begin, int64_t n, const StoreOne& store) {
  Ints draws[4];
  for (int64_t group = 0; group < n; group += 4 * kLanes) {
    DrawGroup(d, static_cast<uint64_t>(begin + group) / 4, draws);
    for (int k = 0; k < 4; ++k) {
      const int64_t i = group + k * kLanes;
      if (i + kLanes <= n) {
        store(y + i, draws[k], Load(x + i, Full{}), Full{});
      } else if (i < n) {
        const Part lanes = First(n - i);
        store(y + i, draws[k], Load(x + i, lanes), lanes);
      }
    }
  }
}

template <class T>
void Dropout(const Draws& d, uint32_t threshold, float scale, const T* x, T* y, int64_t begin, int64_t n) {
  const Floats factor = Set(scale);
  ForDraws(d, x, y, begin, n,
           [&](T* to, Ints draw, Floats v, auto lanes) { Store(to, KeepDrawn(draw, threshold, v * factor), lanes); });
}

template <class T>
void Noise(const Draws& d, float magnitude, const T* x, T* y, int64_t begin, int64_t n) {
  const Floats width = Set(2 * magnitude), least = Set(-magnitude);
  ForDraws(d, x, y, begin, n,
           [&](T* to, Ints draw, Floats v, auto lanes) { Store(to, v + Fma(UnitFloats(draw), width, least), lanes); });
}

template <class T>
void StochasticRound(const Draws& d, const T* x, bf16* y, int64_t begin, int64_t n) {
  ForDraws(d, x, y, begin, n,
           [](bf16* to, Ints draw, Floats v, auto lanes) { StoreExact(to, RoundDrawn(draw, v), lanes); });
}

}  // namespace
}  // namespace temper
