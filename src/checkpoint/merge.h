// Merging a LoRA adapter into a weight: W + scale * (B A).
#pragma once

#include <cstdint>

namespace temper {

// w[i][j] += scale * sum_k b[i][k] * a[k][j], all row-major and f32. The sum runs over k in order, in f32 without fma,
// so the bits are the same on every machine. About 2 * rows * columns * r flops, at some 30 GFLOP/s with AVX2.
void MergeRows(float* w, int64_t rows, int64_t columns, const float* b, const float* a, int64_t r, float scale);

// The scalar twin: the oracle of the test.
void MergeRowsReference(float* w, int64_t rows, int64_t columns, const float* b, const float* a, int64_t r,
                        float scale);

}  // namespace temper
