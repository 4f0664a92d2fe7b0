// A warp's product: which lane holds what, as another compiler of kernels has it.
#include "backend/gpu/units/lane_layout_for_test.h"
#include "ptx_floating_point.h"
#include "ptx_under_test.h"

namespace temper::ptx::ptx_matrix_units_test {
namespace {

using gpu::At, gpu::Layout, gpu::Matrix, gpu::RandomMatrix;

// Written by tests/conformance/matrix_layouts.py (Triton 3.9.0).
const Layout kMmaA = {{{0, 1}, {8, 0}, {0, 8}}, {{0, 2}, {0, 4}, {1, 0}, {2, 0}, {4, 0}}};
const Layout kMmaB = {{{1, 0}, {8, 0}}, {{2, 0}, {4, 0}, {0, 1}, {0, 2}, {0, 4}}};
const Layout kMmaC = {{{0, 1}, {8, 0}}, {{0, 2}, {0, 4}, {1, 0}, {2, 0}, {4, 0}}};

TEST(PtxMatrixUnits, HoldWhatTritonSays) {
  const Matrix a = RandomMatrix(16, 16, 1), b = RandomMatrix(16, 8, 2), before = RandomMatrix(16, 8, 3);
  const auto words_of = [](const Matrix& x, const Layout& layout, int lane, int words, std::vector<uint32_t>* to) {
    for (int i = 0; i < words; ++i) {
      const auto half = [&](int element) { return uint32_t{ToBFloat(At(x, layout.Of(lane, element)))}; };
      to->push_back(half(2 * i) | half(2 * i + 1) << 16);
    }
  };
  std::vector<uint32_t> in;  // of each lane: its words of a, of b, its elements of c
  for (int lane = 0; lane < 32; ++lane) {
    words_of(a, kMmaA, lane, 4, &in);
    words_of(b, kMmaB, lane, 2, &in);
    for (int i = 0; i < 4; ++i) in.push_back(std::bit_cast<uint32_t>(At(before, kMmaC.Of(lane, i))));
    in.insert(in.end(), 2, 0);
  }
  const auto out = RunBody<float>(
      "mul.wide.u32 %rd3, %r0, 48; add.u64 %rd4, %rd2, %rd3;\n"
      "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd4]; ld.global.v2.u32 {%r5, %r6}, [%rd4+16];\n"
      "ld.global.v2.f32 {%f1, %f2}, [%rd4+24]; ld.global.v2.f32 {%f3, %f4}, [%rd4+32];\n"
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, "
      "{%f1, %f2, %f3, %f4};\n"
      "mul.wide.u32 %rd5, %r0, 16; add.u64 %rd6, %rd1, %rd5; st.global.v4.f32 [%rd6], {%f1, %f2, %f3, %f4};\n",
      32, in, 128);
  ASSERT_TRUE(out.ok()) << out.status().message();
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const auto [row, column] = kMmaC.Of(lane, i);
      float sum = At(before, {row, column});
      for (int k = 0; k < 16; ++k) sum += At(a, {row, k}) * At(b, {k, column});
      EXPECT_EQ((*out)[static_cast<size_t>(4 * lane + i)], sum) << row << ", " << column;
    }
  }
}

}  // namespace
}  // namespace temper::ptx::ptx_matrix_units_test
