// linear, linear_dx and linear_dw against their scalar twins.
#include "backend/cpu/products/linear.h"
#include "graph/named_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "backend/cpu/emulator/emulated_amx.h"
#include "backend/cpu/kernel_twin.h"

namespace temper::linear_test {
namespace {

struct Product {
  int64_t T, I, O;
};

// Tails in every dim, single rows and columns, LoRA's skinny factors, more than one block of k, of rows, of columns, a
// column of a few rows more than whole tiles, columns that members share, rows that AMX reads where they lie over two
// blocks of k, outputs that one member writes past the caches.
constexpr Product kProducts[] = {{1, 1, 1},      {1, 64, 33},    {2, 7, 5},        {14, 32, 32},  {57, 130, 100},
                                 {100, 16, 96},  {96, 200, 8},   {70, 2101, 67},   {80, 64, 300}, {5, 4200, 31},
                                 {67, 70, 2300}, {130, 90, 66},  {33, 8192, 40},   {129, 513, 1}, {300, 2200, 130},
                                 {48, 4096, 40}, {96, 4160, 64}, {1040, 32, 1056}, {33, 768, 704}};

std::string Name(Op op, const Product& p, DType dtype) {
  return std::string(ToString(op)) + " T=" + std::to_string(p.T) + " I=" + std::to_string(p.I) +
         " O=" + std::to_string(p.O) + " " + std::string(ToString(dtype)) + " on ";
}

// `inputs`, of which the weight lies as `op` reads it packed.
TestTensors WithPackedWeight(Op op, const TestTensors& inputs) {
  TestTensors packed;
  for (const TestTensor& t : inputs) {
    packed.push_back(packed.size() == 1 ? PackedAs(RuleOf(op).packed.layout, t) : t.Copy());
  }
  return packed;
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
  // A packed weight holds the same numbers, and products with it add up in the same order.
  TestTensors packed;
  if (RuleOf(op).packed.input == 1 && inputs[1].type().dtype == DType::kBF16) {
    packed = WithPackedWeight(op, inputs);
    EXPECT_TRUE(RunReference({op, attributes, &packed})[0].SameBits(want[0])) << Name(op, p, dtype) << "its twin";
  }
  // fast(run, threads): the outputs of one way to compute it.
  const auto check = [&](const std::string& name, const auto& fast, bool reads_packed) {
    const TestTensors one = fast(run, 1);
    ExpectNear(
        one[0], want[0], 2.02 * UnitRoundoff(want[0].type().dtype),
        [&](int64_t i) { return bound * scale[0].Get(i) + 1e-37; }, name);
    // More threads than processors wait long for each other.
    for (int threads : {2, p.T * p.I * p.O < 100'000 ? 3 : 2}) {
      EXPECT_TRUE(fast(run, threads)[0].SameBits(one[0])) << name << ": threads " << threads;
    }
    for (int threads = 1; reads_packed && !packed.empty() && threads <= 2; ++threads) {
      EXPECT_TRUE(fast(TwinRun{op, attributes, &packed}, threads)[0].SameBits(one[0])) << name << ": packed";
    }
    if (!in_place.empty()) {
      EXPECT_TRUE(fast(TwinRun{op, attributes, &inputs, in_place}, 2)[0].SameBits(one[0])) << name;
    }
  };
  const std::vector<Isa> isas = RunnableIsas();
  for (Isa isa : isas) {
    if (isa == Isa::kScalar) continue;
    check(
        Name(op, p, dtype) + std::string(ToString(isa)),
        [&](const TwinRun& r, int threads) { return RunFast(r, isa, threads); }, isa >= Isa::kAvx512Bf16Dot);
  }
  if (dtype == DType::kBF16 && std::find(isas.begin(), isas.end(), Isa::kAvx512Bf16Dot) != isas.end()) {
    EmulatedAmx amx([](const KernelSpec& spec) { return MakeLinearOf(spec, kTilesBF16AmxEmulated); });
    check(
        Name(op, p, dtype) + amx.name(),
        [&](const TwinRun& r, int threads) { return RunKernel(r, amx, /*fast=*/true, threads); }, true);
    EXPECT_EQ(threads_with_emulated_tiles, 0) << "registers were not released";
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

// An adapter's product is part of the sum, over more than a step of k or less, behind one block of k or several.
TEST(Linear, AddsASecondPairOfOperands) {
  for (const Op op : {Op::kLinear, Op::kLinearDx}) {
    const bool dx = op == Op::kLinearDx;
    for (DType dtype : {DType::kBF16, DType::kF32}) {
      for (const Product& p : kProducts) {
        for (const int64_t R : {1, 8, 33}) {
          if (p.T * p.I * p.O > 1'000'000 && R != 8) continue;
          const int64_t inner = dx ? p.O : p.I, outer = dx ? p.I : p.O;
          const bool bias = !dx && R != 8, acc = R != 33;
          TestTensors inputs;
          inputs.push_back(RandomTensor({dtype, {p.T, inner}}, 1));
          inputs.push_back(RandomTensor({dtype, {p.O, p.I}}, 2));
          inputs.push_back(RandomTensor({dtype, {p.T, R}}, 3));
          inputs.push_back(RandomTensor({dtype, dx ? Shape{R, p.I} : Shape{p.O, R}}, 4));
          if (bias) inputs.push_back(RandomTensor({dtype, {p.O}}, 5));
          if (acc) inputs.push_back(RandomTensor({dtype, {p.T, outer}}, 6));
          Attributes attributes = {{"pair2", int64_t{1}}, {"acc", int64_t{acc}}, {"scale", acc ? 1.0 : 0.6}};
          if (!dx) attributes.Set("bias", int64_t{bias});
          std::vector<std::pair<int, int>> in_place;
          if (acc) in_place = {{0, static_cast<int>(inputs.size()) - 1}};
          CheckProduct(op, p, dtype, attributes, inner + R, inputs, in_place);
        }
      }
    }
  }
}

// A quantised weight is dequantised while it is packed: the result has the bits of its bf16 values'. Of nf4 most of
// these have blocks that cross rows.
void CheckQuantised(ElementFormat format) {
  for (const Op op : {Op::kLinear, Op::kLinearDx}) {
    for (const Product& p : kProducts) {
      const bool large = p.T * p.I * p.O > 1'000'000, dx = op == Op::kLinearDx;
      TestTensors kept, values;
      for (TestTensors* inputs : {&kept, &values}) {
        inputs->push_back(RandomTensor({DType::kBF16, {p.T, dx ? p.O : p.I}}, 1));
        inputs->push_back(RandomQuantised(format, {p.O, p.I}, 2));
        inputs->push_back(RandomTensor({DType::kBF16, {p.T, 8}}, 3));
        inputs->push_back(RandomTensor({DType::kBF16, dx ? Shape{8, p.I} : Shape{p.O, 8}}, 4));
        inputs->push_back(RandomTensor({DType::kBF16, {p.T, dx ? p.I : p.O}}, 5));
      }
      values[1] = InBf16(values[1]);
      Attributes attributes = {{"pair2", int64_t{1}}, {"acc", int64_t{1}}, {"scale", 0.7}};
      if (!dx) attributes.Set("bias", int64_t{0});
      if (!large) CheckProduct(op, p, DType::kBF16, attributes, (dx ? p.O : p.I) + 8, kept);
      for (const Isa isa : RunnableIsas()) {
        if (isa == Isa::kScalar && large) continue;
        const TestTensors want = RunFast({op, attributes, &values}, isa, 2);
        EXPECT_TRUE(RunFast({op, attributes, &kept}, isa, 2)[0].SameBits(want[0]))
            << Name(op, p, DType::kBF16) << ToString(isa);
      }
    }
  }
}
TEST(Linear, ReadsEachQuantisedFormatAsItsBf16Values) {
  for (const FormatRule* rule : FormatRules()) {
    SCOPED_TRACE(rule->name);
    CheckQuantised(FormatWith(*rule));
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
}  // namespace temper::linear_test
