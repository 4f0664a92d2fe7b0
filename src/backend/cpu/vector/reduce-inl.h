// Loops of sum_rows and sum_squares.
#pragma once

namespace temper {
namespace {

// kVectors neighbouring vectors of columns. Sums of kSumRowsBlock rows meet in registers, these sums one after the
// other: an f32 column sum of n rows loses at most (kSumRowsBlock + n / kSumRowsBlock) roundoffs instead of n.
template <int kVectors, class T, class Lanes>
void SumColumns(const T* x, int64_t rows, int64_t stride, const float* acc, float* y, Lanes lanes) {
  Floats total[kVectors];
  for (int k = 0; k < kVectors; ++k) total[k] = acc == nullptr ? Zero() : Load(acc + k * kLanes, lanes);
  for (int64_t begin = 0; begin < rows; begin += kSumRowsBlock) {
    const int64_t end = begin + kSumRowsBlock < rows ? begin + kSumRowsBlock : rows;
    Floats sum[kVectors];
    for (int k = 0; k < kVectors; ++k) sum[k] = Zero();
    for (int64_t t = begin; t < end; ++t) {
      for (int k = 0; k < kVectors; ++k) sum[k] += Load(x + t * stride + k * kLanes, lanes);
    }
    for (int k = 0; k < kVectors; ++k) total[k] += sum[k];
  }
  for (int k = 0; k < kVectors; ++k) Store(y + k * kLanes, total[k], lanes);
}

template <class T>
void SumRows(const T* x, int64_t rows, int64_t stride, int64_t columns, const float* acc, float* y) {
  if (columns == kSumRowsColumns) return SumColumns<kSumRowsColumns / kLanes>(x, rows, stride, acc, y, Full{});
  Sweep(columns, [=](int64_t i, auto lanes) {
    SumColumns<1>(x + i, rows, stride, acc == nullptr ? nullptr : acc + i, y + i, lanes);
  });
}

// In double: squares of f32 are exact there, and 4096 of them overflow nothing.
template <class T>
double SumSquares(const T* g, int64_t n) {
  Doubles low = ZeroDoubles(), high = ZeroDoubles(), low2 = ZeroDoubles(), high2 = ZeroDoubles();
  const auto add = [=](Floats x, Doubles& a, Doubles& b) {
    a = Fma(LowDoubles(x), LowDoubles(x), a);
    b = Fma(HighDoubles(x), HighDoubles(x), b);
  };
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    add(Load(g + i, Full{}), low, high);
    add(Load(g + i + kLanes, Full{}), low2, high2);
  }
  for (; i + kLanes <= n; i += kLanes) add(Load(g + i, Full{}), low, high);
  if (i < n) add(Load(g + i, First(n - i)), low2, high2);
  return Sum((low + high) + (low2 + high2));
}

}  // namespace
}  // namespace temper
