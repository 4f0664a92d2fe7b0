#include "backend/cpu/products/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "backend/cpu/emulator/emulated_amx.h"
#include "backend/cpu/kernel_twin.h"
#include "graph/ops/matrix_product.h"

namespace temper::gemm_test {
namespace {

// The rules (graph/ops/matrix_product.h) know no instruction set; every plan must fit into what they give.
TEST(Gemm, StaysWithinTheScratchOfTheRulesForAnyShape) {
  std::mt19937 engine(1);
  const auto any = [&](int64_t n) { return static_cast<int64_t>(engine() % static_cast<uint32_t>(n)); };
  // Of any magnitude, with many multiples of tiles and sizes beside them, where what tiles round up to counts most.
  const auto dim = [&] {
    const int64_t n = int64_t{1} << any(20);
    const int64_t kinds[] = {n, n + any(n), n + any(n), std::max<int64_t>(1, n * (1 + any(3)) + any(8) - 2)};
    return kinds[any(4)];
  };
  for (int i = 0; i < 100000; ++i) {
    GemmShape shape = {.m = dim(), .n = dim(), .k = dim()};
    shape.dtype = engine() % 2 ? DType::kBF16 : DType::kF32;
    shape.out_dtype = engine() % 2 ? shape.dtype : DType::kF32;
    shape.a_k_contiguous = engine() % 2;
    shape.b_k_contiguous = engine() % 2;
    shape.k2 = shape.a_k_contiguous && engine() % 2 ? 1 + any(256) : 0;
    shape.b_packed = shape.dtype == DType::kBF16 && engine() % 2;
    const int threads = 1 + static_cast<int>(engine() % 5);
    const Bytes given = MatrixProductScratch(shape.m, shape.n, shape.k, shape.out_dtype, shape.a_k_contiguous, threads,
                                             shape.b_packed, shape.k2);
    for (Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAvx512Bf16Dot, Isa::kAmxBf16}) {
      if (shape.b_packed && !TilesOf(shape.dtype, isa).pair_panels) continue;
      const Bytes needed = Gemm(shape, threads, isa).workspace();
      ASSERT_LE(needed.v, given.v) << shape.m << " " << shape.n << " " << shape.k << " + " << shape.k2 << " "
                                   << ToString(shape.dtype) << " -> " << ToString(shape.out_dtype) << " "
                                   << shape.a_k_contiguous << shape.b_k_contiguous << shape.b_packed << " threads "
                                   << threads << " " << ToString(isa);
    }
  }
}

// What the loss rests on, whose chunks memory decides: sums over k that go on where others left them are those of one
// product, wherever k was cut (at multiples of what matrix units take at once).
TEST(Gemm, SumsThatGoOnAreThoseOfTheWholeToTheBit) {
  constexpr int64_t m = 133, n = 72, k = 4200;
  const TestTensor a = RandomTensor({DType::kBF16, {k, m}}, 1), b = RandomTensor({DType::kBF16, {k, n}}, 2);
  const TestTensor begun = RandomTensor({DType::kF32, {m, n}}, 3);
  std::vector<const TileKernels*> tables;
  const std::vector<Isa> isas = RunnableIsas();
  for (Isa isa : isas) {
    if (isa >= Isa::kAvx2) tables.push_back(&TilesOf(DType::kBF16, isa));
  }
  if (std::find(isas.begin(), isas.end(), Isa::kAvx512Bf16Dot) != isas.end()) tables.push_back(&kTilesBF16AmxEmulated);
  for (const TileKernels* tiles : tables) {
    const auto product = [&](int64_t most, const std::vector<int64_t>& cuts) {
      const Gemm gemm(
          {.m = m, .n = n, .k = most, .dtype = DType::kBF16, .a_k_contiguous = false, .b_k_contiguous = false}, 1,
          *tiles);
      const TestTensor workspace({DType::kF32, {gemm.workspace().v / 4}});
      TestTensor out = begun.Copy();
      for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        const TileOutput output = {.out = out.data(),
                                   .out_stride = n,
                                   .start = reinterpret_cast<const float*>(out.data()),
                                   .start_stride = n,
                                   .goes_on = true};
        gemm.RunInTeam({a.data() + cuts[i] * m * 2, m, b.data() + cuts[i] * n * 2, n, output},
                       {m, n, cuts[i + 1] - cuts[i]}, workspace.data(), {0, 1});
      }
      return out;
    };
    const TestTensor whole = product(k, {0, k});
    EXPECT_FALSE(whole.SameBits(begun));
    EXPECT_TRUE(product(2176, {0, 512, 1024, 3168, k}).SameBits(whole)) << tiles->k_step;
    EXPECT_TRUE(product(3200, {0, 32, 96, 512, 640, 1024, k}).SameBits(whole)) << tiles->k_step;
  }
}

// Skinny products of AVX2 read the long operand where it lies, in any layout, and in slices of threads.
TEST(Gemm, OperandsReadInPlaceGiveWhatPackedOnesDoToTheBit) {
  struct Case {
    int64_t m, n, k;
    bool a_k, b_k;
  };
  for (const Case& c :
       {Case{100, 16, 301, true, true}, Case{103, 24, 130, true, false}, Case{16, 96, 301, false, false},
        Case{7, 99, 301, false, false}, Case{101, 16, 301, false, false}}) {
    for (const TileKernels* tiles : {&kTilesF32Avx2, &kTilesBF16AsF32Avx2}) {
      if (RunnableIsas().back() < Isa::kAvx2) GTEST_SKIP() << "needs AVX2";
      const DType dtype = tiles == &kTilesF32Avx2 ? DType::kF32 : DType::kBF16;
      const TestTensor a = RandomTensor({dtype, {c.m, c.k}}, 1), b = RandomTensor({dtype, {c.n, c.k}}, 2);
      TileKernels packing = *tiles;
      packing.rows_in_place = packing.lines_in_place = false;
      const auto product = [&](const TileKernels& table) {
        const Gemm gemm(
            {.m = c.m, .n = c.n, .k = c.k, .dtype = dtype, .a_k_contiguous = c.a_k, .b_k_contiguous = c.b_k}, 2, table);
        const TestTensor workspace({DType::kF32, {gemm.workspace().v / 4}});
        TestTensor out({DType::kF32, {c.m, c.n}});
        gemm.Run({a.data(), c.a_k ? c.k : c.m, b.data(), c.b_k ? c.k : c.n, {.out = out.data(), .out_stride = c.n}},
                 workspace.data());
        return out;
      };
      EXPECT_TRUE(product(*tiles).SameBits(product(packing))) << c.m << " " << c.n << " " << ToString(dtype);
    }
  }
}

// Scratch is memory that the model cannot have.
TEST(Gemm, NeedsLittleScratch) {
  for (int threads : {1, 2}) {
    EXPECT_LE(MatrixProductScratch(2048, 768, 2048, DType::kBF16, true, threads).v, MiB(15).v);
    EXPECT_LE(MatrixProductScratch(8192, 14336, 4096, DType::kBF16, true, threads).v, MiB(15).v);
    EXPECT_LE(MatrixProductScratch(4096, 14336, 8192, DType::kF32, false, threads).v, MiB(13).v);
  }
}

}  // namespace
}  // namespace temper::gemm_test
