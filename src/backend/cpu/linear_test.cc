// linear, linear_dx and linear_dw against their scalar twins.
#include <gtest/gtest.h>

#include <string>

#include "backend/cpu/kernel_twin.h"

namespace temper {
namespace {

struct Product {
  int64_t T, I, O;
};

// Tails in every dim, single rows and columns, LoRA's skinny factors, more than one block of k, of rows, of columns.
constexpr Product kProducts[] = {{1, 1, 1},      {1, 64, 33},   {2, 7, 5},      {14, 32, 32},
                                 {57, 130, 100}, {100, 16, 96}, {96, 200, 8},   {70, 2101, 67},
                                 {80, 64, 300},  {5, 4200, 31}, {67, 70, 2300}, {130, 90, 66}};

std::string Name(Op op, const Product& p, DType dtype, Isa isa) {
  return std::string(ToString(op)) + " T=" + std::to_string(p.T) + " I=" + std::to_string(p.I) +
         " O=" + std::to_string(p.O) + " " + std::string(ToString(dtype)) + " on " + std::string(ToString(isa));
}

// Runs `op` everywhere and checks it. A sum of `terms` products in f32 is off by at most terms + 2 roundings of the sum
// of magnitudes (scale, bias and acc included), and both its result and the twin's are rounded once more.
void CheckProduct(Op op, const Product& p, DType dtype, const Attributes& attributes, int64_t terms,
                  const TestTensors& inputs, std::vector<std::pair<int, int>> in_place = {}) {
  const TwinRun run{op, attributes, &inputs};
  const TestTensors want = RunReference(run);
  TestTensors magnitudes;
  for (const TestTensor& t : inputs) magnitudes.push_back(Absolute(t));
  Attributes absolute = attributes;
  absolute.Set("scale", std::fabs(attributes.DoubleOr("scale", 1.0)));
  const TestTensors scale = RunReference({op, absolute, &magnitudes});
  const double bound = static_cast<double>(terms + 4) * UnitRoundoff(DType::kF32) * 1.01;
  for (Isa isa : RunnableIsas()) {
    if (isa == Isa::kScalar) continue;
    const TestTensors one = RunFast(run, isa, 1);
    ExpectNear(
        one[0], want[0], 2.02 * UnitRoundoff(want[0].type().dtype),
        [&](int64_t i) { return bound * scale[0].Get(i) + 1e-37; }, Name(op, p, dtype, isa));
    // More threads than processors wait long for each other.
    for (int threads : {2, p.T * p.I * p.O < 100'000 ? 3 : 2}) {
      EXPECT_TRUE(RunFast(run, isa, threads)[0].SameBits(one[0])) << Name(op, p, dtype, isa) << ": threads " << threads;
    }
    if (!in_place.empty()) {
      EXPECT_TRUE(RunFast({op, attributes, &inputs, in_place}, isa, 2)[0].SameBits(one[0])) << Name(op, p, dtype, isa);
    }
  }
}

TEST(Linear, MatchesTheScalarTwin) {
  for (DType dtype : {DType::kBF16, DType::kF32}) {
    for (const Product& p : kProducts) {
      for (int variant = 0; variant < 5; ++variant) {
        // The twin is slow: large products with bias and acc only.
        if (p.T * p.I * p.O > 1'000'000 && variant != 3) continue;
        const bool bias = variant & 1, acc = variant & 2, f32_out = variant == 4;
        TestTensors inputs;
        inputs.push_back(RandomTensor({dtype, {p.T, p.I}}, 1));
        inputs.push_back(RandomTensor({dtype, {p.O, p.I}}, 2));
        if (bias) inputs.push_back(RandomTensor({dtype, {p.O}}, 3));
        if (acc) inputs.push_back(RandomTensor({dtype, {p.T, p.O}}, 4));
        Attributes attributes = {{"bias", int64_t{bias}}, {"acc", int64_t{acc}}, {"scale", acc ? -0.37 : 1.0}};
        if (f32_out) attributes.Set("out", std::string("f32"));
        std::vector<std::pair<int, int>> in_place;
        if (acc) in_place = {{0, 2 + bias}};
        CheckProduct(Op::kLinear, p, dtype, attributes, p.I, inputs, in_place);
      }
    }
  }
}

TEST(LinearDx, MatchesTheScalarTwin) {
  for (DType dtype : {DType::kBF16, DType::kF32}) {
    for (const Product& p : kProducts) {
      for (bool acc : {false, true}) {
        if (p.T * p.I * p.O > 1'000'000 && !acc) continue;
        TestTensors inputs;
        inputs.push_back(RandomTensor({dtype, {p.T, p.O}}, 1));
        inputs.push_back(RandomTensor({dtype, {p.O, p.I}}, 2));
        if (acc) inputs.push_back(RandomTensor({dtype, {p.T, p.I}}, 3));
        const Attributes attributes = {{"acc", int64_t{acc}}, {"scale", acc ? 2.5 : 1.0}};
        std::vector<std::pair<int, int>> in_place;
        if (acc) in_place = {{0, 2}};
        CheckProduct(Op::kLinearDx, p, dtype, attributes, p.O, inputs, in_place);
      }
    }
  }
}

TEST(LinearDw, MatchesTheScalarTwin) {
  for (DType dtype : {DType::kBF16, DType::kF32}) {
    for (const Product& p : kProducts) {
      for (bool acc : {false, true}) {
        if (p.T * p.I * p.O > 1'000'000 && !acc) continue;
        TestTensors inputs;
        inputs.push_back(RandomTensor({dtype, {p.T, p.O}}, 1));
        inputs.push_back(RandomTensor({dtype, {p.T, p.I}}, 2));
        if (acc) inputs.push_back(RandomTensor({DType::kF32, {p.O, p.I}}, 3));
        const Attributes attributes = {{"acc", int64_t{acc}}, {"scale", acc ? 0.5 : 1.0}};
        std::vector<std::pair<int, int>> in_place;
        if (acc) in_place = {{0, 2}};
        CheckProduct(Op::kLinearDw, p, dtype, attributes, p.T, inputs, in_place);
      }
    }
  }
}

// A deep product sums over several blocks of k.
TEST(LinearDw, SumsOverManyTokens) {
  const Product p{5000, 9, 20};
  TestTensors inputs;
  inputs.push_back(RandomTensor({DType::kBF16, {p.T, p.O}}, 1));
  inputs.push_back(RandomTensor({DType::kBF16, {p.T, p.I}}, 2));
  CheckProduct(Op::kLinearDw, p, DType::kBF16, {}, p.T, inputs);
}

}  // namespace
}  // namespace temper
