// row_squares against its scalar twin, of weights in every form that products read.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "backend/cpu/kernel_twin.h"

namespace temper::row_squares_test {
namespace {

struct Dims {
  int64_t R, O, I;
};
// Ranks of one, below and above a tile; rows that are no whole block of 64; more than one block of k.
constexpr Dims kDims[] = {{1, 1, 1}, {3, 5, 33}, {8, 130, 64}, {17, 70, 200}, {33, 64, 1100}};

TestTensor WeightOf(ElementFormat format, const Shape& shape) {
  return format.quantised() ? RandomQuantised(format, shape, 2, 0.3) : RandomTensor({format, shape}, 2, 0.3);
}

// A term is a product of up to I + 2 R sums, each rounded in f32; what is added up are magnitudes of these.
void Check(const Dims& d, DType dtype, ElementFormat format, bool acc) {
  TestTensors inputs;
  inputs.push_back(RandomTensor({dtype, {d.R, d.I}}, 1, 0.3));
  inputs.push_back(WeightOf(format, {d.O, d.I}));
  inputs.push_back(RandomTensor({dtype, {d.O, d.R}}, 3, 0.3));
  if (acc) inputs.push_back(RandomTensor({DType::kF32, {d.O}}, 4));
  const Attributes attributes = {{"scale", -0.7}, {"acc", int64_t{acc}}};
  const TwinRun run{Op::kRowSquares, attributes, &inputs};
  const TestTensors want = RunReference(run);
  TestTensors magnitudes;
  for (const TestTensor& t : inputs) magnitudes.push_back(Absolute(t));
  const TestTensors scale = RunReference({Op::kRowSquares, {{"scale", 0.7}, {"acc", int64_t{acc}}}, &magnitudes});
  const double bound = static_cast<double>(d.I + 2 * d.R + 8) * UnitRoundoff(DType::kF32) * 1.01;
  TestTensors packed;
  if (dtype == DType::kBF16 && !format.quantised()) {
    for (const TestTensor& t : inputs) {
      packed.push_back(packed.size() == 1 ? PackedAs(ElementLayout::kColumnPairs, t) : t.Copy());
    }
    EXPECT_TRUE(RunReference({Op::kRowSquares, attributes, &packed})[0].SameBits(want[0]));
  }
  for (const Isa isa : RunnableIsas()) {
    if (isa == Isa::kScalar) continue;
    const std::string name = std::to_string(d.R) + " of " + std::to_string(d.O) + " x " + std::to_string(d.I) + " " +
                             std::string(ToString(format)) + " on " + std::string(ToString(isa));
    const TestTensors one = RunFast(run, isa, 1);
    ExpectNear(
        one[0], want[0], 2.02 * UnitRoundoff(DType::kF32), [&](int64_t i) { return bound * scale[0].Get(i) + 1e-37; },
        name);
    EXPECT_TRUE(RunFast(run, isa, 2)[0].SameBits(one[0])) << name << ": two threads";
    if (packed.empty() || isa < Isa::kAvx512Bf16Dot) continue;
    EXPECT_TRUE(RunFast({Op::kRowSquares, attributes, &packed}, isa, 2)[0].SameBits(one[0])) << name << ": packed";
  }
}

TEST(RowSquares, MatchesTheScalarTwin) {
  for (const Dims& d : kDims) {
    for (const bool acc : {false, true}) {
      Check(d, DType::kF32, DType::kF32, acc);
      Check(d, DType::kBF16, DType::kBF16, acc);
    }
    Check(d, DType::kBF16, ElementFormat::Int8Rows(), true);
    Check(d, DType::kBF16, ElementFormat::Nf4(), true);
  }
}

}  // namespace
}  // namespace temper::row_squares_test
