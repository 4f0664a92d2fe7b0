// The loops of adafactor over the elements of rows (backend/cpu/pointwise/adafactor_step.h).
#pragma once

namespace temper {
namespace {

// sums[c] = sum over rows of g[row, c]^2.
inline void AdafactorSquares(const float* g, int64_t rows, int64_t columns, float* sums) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* const of_row = g + row * columns;
    Sweep(columns, [=](int64_t i, auto lanes) {
      const Floats x = Load(of_row + i, lanes);
      Store(sums + i, row == 0 ? x * x : Fma(x, x, Load(sums + i, lanes)), lanes);
    });
  }
}

TEMPER_VEC Floats AdafactorStepOf(float of_row, Floats of_column, Floats g) {
  return Set(of_row) * of_column * g;
}

// The sum of squares of a row's step, in double as sum_squares has it.
inline double AdafactorSquaresOfStep(float of_row, const float* of_columns, const float* g, int64_t n) {
  Doubles low = ZeroDoubles(), high = ZeroDoubles();
  Sweep(n, [=, &low, &high](int64_t i, auto lanes) {
    const Floats u = AdafactorStepOf(of_row, Load(of_columns + i, lanes), Load(g + i, lanes));
    low = Fma(LowDoubles(u), LowDoubles(u), low);
    high = Fma(HighDoubles(u), HighDoubles(u), high);
  });
  return Sum(low + high);
}

template <class W>
void AdafactorStep(float keep, float minus_step, float of_row, const float* of_columns, const float* master,
                   const float* g, float* new_master, W* weight, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) {
    const Floats u = AdafactorStepOf(of_row, Load(of_columns + i, lanes), Load(g + i, lanes));
    const Floats w = Fma(Set(minus_step), u, Set(keep) * Load(master + i, lanes));
    Store(new_master + i, w, lanes);
    if (weight != nullptr) StoreExact(weight + i, w, lanes);
  });
}

}  // namespace
}  // namespace temper
