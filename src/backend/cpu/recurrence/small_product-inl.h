// Products of small matrices of f32 that lie in the caches: c_MN = or += a_MK b_KN. Rows of b and c are contiguous; an
// element (i, p) of a lies at i * a_row + p * a_column, so that a transposed matrix is read where it is. Sums are in
// the order of K.
#pragma once

namespace temper {
namespace {

struct SmallProduct {
  int64_t M, N, K;
  const float* a;
  int64_t a_row, a_column;
  const float* b;
  int64_t b_row;
  float* c;
  int64_t c_row;
  bool accumulate = false;
};

// Sums of a tile stay in registers: of 16 on AVX2 12 and two of b, of 32 on AVX-512 24 and two of b. Two vectors of 128
// rows of b, which all rows of a meet, take 16 KiB of the first-level cache at most, and half of its sets where rows
// are 512 bytes.
constexpr int kTileRows = kLanes == 8 ? 6 : 12;
constexpr int kTileVectors = 2;
constexpr int kFewRows = 4;  // of what is left of 64 rows

// `lanes`: of each vector; a Part only where there is one.
template <int kRows, int kVectors, class Lanes>
TEMPER_VEC void MultiplyTile(const SmallProduct& p, int64_t i, int64_t j, Lanes lanes) {
  Floats sum[kRows][kVectors];
  float* const c = p.c + i * p.c_row + j;
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = p.accumulate ? Load(c + r * p.c_row + v * kLanes, lanes) : Zero();
    }
  }
  const float *a = p.a + i * p.a_row, *b = p.b + j;
  for (int64_t k = 0; k < p.K; ++k, a += p.a_column, b += p.b_row) {
    Floats row[kVectors];
    for (int v = 0; v < kVectors; ++v) row[v] = Load(b + v * kLanes, lanes);
    for (int r = 0; r < kRows; ++r) {
      const Floats x = Set(a[r * p.a_row]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = Fma(x, row[v], sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) Store(c + r * p.c_row + v * kLanes, sum[r][v], lanes);
  }
}

template <int kVectors, class Lanes>
void MultiplyColumns(const SmallProduct& p, int64_t j, Lanes lanes) {
  int64_t i = 0;
  for (; i + kTileRows <= p.M; i += kTileRows) MultiplyTile<kTileRows, kVectors>(p, i, j, lanes);
  for (; i + kFewRows <= p.M; i += kFewRows) MultiplyTile<kFewRows, kVectors>(p, i, j, lanes);
  for (; i < p.M; ++i) MultiplyTile<1, kVectors>(p, i, j, lanes);
}

void Multiply(const SmallProduct& p) {
  int64_t j = 0;
  for (; j + kTileVectors * kLanes <= p.N; j += kTileVectors * kLanes) MultiplyColumns<kTileVectors>(p, j, Full{});
  for (; j + kLanes <= p.N; j += kLanes) MultiplyColumns<1>(p, j, Full{});
  if (j < p.N) MultiplyColumns<1>(p, j, First(p.N - j));
}

}  // namespace
}  // namespace temper
