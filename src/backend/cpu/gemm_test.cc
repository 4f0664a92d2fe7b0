#include "backend/cpu/gemm.h"

#include <gtest/gtest.h>

#include <random>

#include "graph/ops/matrix_product.h"

namespace temper {
namespace {

// The rules (graph/ops/matrix_product.h) know no instruction set; every plan must fit into what they give.
TEST(Gemm, StaysWithinTheScratchOfTheRulesForAnyShape) {
  std::mt19937 engine(1);
  const auto dim = [&] {
    // Of any magnitude, with many multiples of tiles.
    const int64_t n = int64_t{1} << (engine() % 16);
    return engine() % 3 == 0 ? n : n + static_cast<int64_t>(engine() % static_cast<uint32_t>(n));
  };
  for (int i = 0; i < 30000; ++i) {
    GemmShape shape = {.m = dim(), .n = dim(), .k = dim()};
    shape.dtype = engine() % 2 ? DType::kBF16 : DType::kF32;
    shape.out_dtype = engine() % 2 ? shape.dtype : DType::kF32;
    shape.a_k_contiguous = engine() % 2;
    shape.b_k_contiguous = engine() % 2;
    const int threads = 1 + static_cast<int>(engine() % 5);
    const Bytes given = MatrixProductScratch(shape.m, shape.n, shape.k, shape.out_dtype, shape.a_k_contiguous, threads);
    for (Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
      const Bytes needed = Gemm(shape, threads, isa).workspace();
      ASSERT_LE(needed.v, given.v) << shape.m << " " << shape.n << " " << shape.k << " " << ToString(shape.dtype)
                                   << " -> " << ToString(shape.out_dtype) << " " << shape.a_k_contiguous
                                   << shape.b_k_contiguous << " threads " << threads << " " << ToString(isa);
    }
  }
}

// Scratch is memory that the model cannot have.
TEST(Gemm, NeedsLittleScratch) {
  for (int threads : {1, 2}) {
    EXPECT_LE(MatrixProductScratch(2048, 768, 2048, DType::kBF16, true, threads).v, MiB(14).v);
    EXPECT_LE(MatrixProductScratch(8192, 14336, 4096, DType::kBF16, true, threads).v, MiB(14).v);
    EXPECT_LE(MatrixProductScratch(4096, 14336, 8192, DType::kF32, false, threads).v, MiB(13).v);
  }
}

}  // namespace
}  // namespace temper
