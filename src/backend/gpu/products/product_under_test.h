// For tests: products of random numbers in the host's memory, against a sum in double.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/kernel_twin.h"
#include "backend/gpu/products/matrix_product.h"

namespace temper::gpu {

struct ProductCase {
  int64_t m, n, k;
  bool a_k_contiguous, b_k_contiguous, acc, bias;
  DType dtype, out_dtype;
};

inline constexpr ProductCase kProductCases[] = {
    {64, 64, 16, true, true, false, false, DType::kF32, DType::kF32},
    {1, 1, 1, true, true, false, false, DType::kF32, DType::kF32},
    {65, 3, 33, true, true, true, true, DType::kBF16, DType::kBF16},
    {7, 130, 20, true, false, false, false, DType::kBF16, DType::kBF16},
    {66, 70, 17, false, false, true, false, DType::kBF16, DType::kF32},
    {130, 136, 200, true, true, true, true, DType::kBF16, DType::kBF16},  // whole rows, over blocks of 128
    {136, 8, 96, false, false, false, false, DType::kBF16, DType::kF32},
    {16, 264, 72, true, false, true, false, DType::kBF16, DType::kBF16},
    {5, 9, 40, false, true, false, true, DType::kF32, DType::kF32},
    {3, 4, 0, true, true, true, false, DType::kF32, DType::kF32},  // no terms
};

inline void CheckProduct(const ProductCase& c, MatrixProducts& products) {
  const ProductShape shape = {.m = c.m,
                              .n = c.n,
                              .k = c.k,
                              .dtype = c.dtype,
                              .out_dtype = c.out_dtype,
                              .a_k_contiguous = c.a_k_contiguous,
                              .b_k_contiguous = c.b_k_contiguous,
                              .acc = c.acc,
                              .bias = c.bias,
                              .scale = 0.5};
  const TestTensor a = RandomTensor({c.dtype, {c.m, c.k}}, 1), b = RandomTensor({c.dtype, {c.n, c.k}}, 2);
  const TestTensor bias = RandomTensor({c.dtype, {c.n}}, 3), acc = RandomTensor({c.out_dtype, {c.m, c.n}}, 4);
  TestTensor out({c.out_dtype, {c.m, c.n}});
  const auto product = products.Make(shape);
  ASSERT_TRUE(product.ok()) << product.status().message();
  const Status status =
      (*product)->Run({a.data(), b.data(), c.acc ? acc.data() : nullptr, c.bias ? bias.data() : nullptr, out.data()});
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_TRUE(out.GuardIntact());
  for (int64_t m = 0; m < c.m; ++m) {
    for (int64_t n = 0; n < c.n; ++n) {
      double sum = 0, size = 0;
      for (int64_t k = 0; k < c.k; ++k) {
        const double x =
            a.Get(c.a_k_contiguous ? m * c.k + k : k * c.m + m) * b.Get(c.b_k_contiguous ? n * c.k + k : k * c.n + n);
        sum += 0.5 * x;
        size += 0.5 * std::fabs(x);
      }
      if (c.bias) sum += bias.Get(n);
      if (c.acc) sum += acc.Get(m * c.n + n);
      // k + 3 roundings in f32 of what is at most that large, and the last.
      const double bound = static_cast<double>(c.k + 3) * UnitRoundoff(DType::kF32) * (size + 2 + std::fabs(sum)) +
                           UnitRoundoff(c.out_dtype) * std::fabs(sum) * 1.01;
      ASSERT_NEAR(out.Get(m * c.n + n), sum, bound) << m << ", " << n << " of " << c.m << " x " << c.n << " x " << c.k;
    }
  }
}

}  // namespace temper::gpu
