// What recurrences in chunks of documents share: rows of f32 in scratch, decays between a chunk's tokens, a row's
// documents.
#pragma once

#include <cstdint>

#include "graph/ops/state_chunk.h"

// clang-format off
#include "backend/cpu/vector/sweep-inl.h"
#include "backend/cpu/vector/exp-inl.h"
#include "backend/cpu/recurrence/small_product-inl.h"
// clang-format on

namespace temper {
namespace {

constexpr int64_t C = kStateChunk;

TEMPER_VEC float DotOf(const float* a, const float* b, int64_t n) {
  return Total(n, [=](int64_t i, auto lanes) { return Load(a + i, lanes) * Load(b + i, lanes); });
}
TEMPER_VEC void ScaleRow(float* x, float factor, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) { Store(x + i, Load(x + i, lanes) * Set(factor), lanes); });
}
TEMPER_VEC void AddScaled(const float* x, float factor, float* y, int64_t n) {
  Sweep(n,
        [=](int64_t i, auto lanes) { Store(y + i, Fma(Load(x + i, lanes), Set(factor), Load(y + i, lanes)), lanes); });
}
TEMPER_VEC void SetZero(float* x, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) { Store(x + i, Zero(), lanes); });
}
// From or to the type of operands.
template <class From, class To>
TEMPER_VEC void CopyRow(const From* x, To* y, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) { Store(y + i, Load(x + i, lanes), lanes); });
}
// Row i of y = row i of x, times decay[i]; rows follow each other.
TEMPER_VEC void DecayRows(const float* x, const float* decay, int64_t rows, int64_t columns, float* y) {
  for (int64_t i = 0; i < rows; ++i) {
    const float* const from = x + i * columns;
    float* const to = y + i * columns;
    const Floats factor = Set(decay[i]);
    Sweep(columns, [=](int64_t d, auto lanes) { Store(to + d, Load(from + d, lanes) * factor, lanes); });
  }
}

void Transpose(const float* x, int64_t rows, int64_t columns, int64_t x_row, float* y, int64_t y_row) {
  constexpr int64_t kBlock = 8;
  for (int64_t i = 0; i < rows; i += kBlock) {
    const int64_t i_end = i + kBlock < rows ? i + kBlock : rows;
    for (int64_t j = 0; j < columns; ++j) {
      for (int64_t r = i; r < i_end; ++r) y[j * y_row + r] = x[r * x_row + j];
    }
  }
}

// f of one number.
template <class F>
TEMPER_VEC float OfOne(float x, const F& f) {
  return Sum(Keep(f(Set(x)), First(1)));
}

// Decays of a chunk's n tokens. With G_i the sum of the logarithms `g` (each `stride` behind the one before) up to
// token i: read_i = exp(G_i), from the chunk's begin; keep_i = exp(G_n-1 - G_i), to its end; between_CC_ij = exp(G_i -
// G_j) for j <= i, 0 above.
struct ChunkDecays {
  float *sum, *rest;  // scratch
  float *read, *keep, *between_CC;
};
TEMPER_VEC void FindDecays(const float* g, int64_t stride, int64_t n, const ChunkDecays& d) {
  // Differences of sums are exponentiated: each sum is in two floats, so that it loses no roundoff of its own size.
  double total = 0;
  for (int64_t i = 0; i < n; ++i) {
    total += g[i * stride];
    d.sum[i] = static_cast<float>(total);
    d.rest[i] = static_cast<float>(total - d.sum[i]);
  }
  const float last = d.sum[n - 1], last_rest = d.rest[n - 1];
  Sweep(n, [&](int64_t i, auto lanes) {
    const Floats s = Load(d.sum + i, lanes);
    Store(d.read + i, Exp(s), lanes);
    Store(d.keep + i, Exp((Set(last) - s) + (Set(last_rest) - Load(d.rest + i, lanes))), lanes);
  });
  for (int64_t i = 0; i < n; ++i) {
    float* const row = d.between_CC + i * C;
    SetZero(row, n);
    Sweep(i + 1, [&](int64_t s, auto lanes) {
      const Floats less = Set(d.rest[i]) - Load(d.rest + s, lanes);
      Store(row + s, Exp((Set(d.sum[i]) - Load(d.sum + s, lanes)) + less), lanes);
    });
  }
}

// Calls f(first, end) for the documents of tokens [begin, end).
template <class F>
TEMPER_VEC void ForEachDocument(int64_t begin, int64_t row_end, const int32_t* document_start, const F& f) {
  for (int64_t first = begin, t = first + 1; first < row_end; ++t) {
    if (t < row_end && document_start[t] != t) continue;
    f(first, t);
    first = t;
  }
}
TEMPER_VEC int64_t ChunkEnd(int64_t first, int64_t end) {
  return first + C < end ? first + C : end;
}

}  // namespace
}  // namespace temper
