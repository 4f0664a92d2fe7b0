// Quantised weights on the emulator or on a GPU: their numbers, and the products of these.
#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/products/loss_twin.h"
#include "backend/gpu/gpus_under_test.h"
#include "graph/named_ops.h"
#include "graph/rule.h"

namespace temper::dequantise_test {
namespace {

constexpr ElementFormat kFormats[] = {ElementFormat::Int8Rows(), ElementFormat::Nf4()};

// A part of a matrix: `at` and `shape` within `whole`.
struct Part {
  Shape whole, at, shape;
};

// Rows of one piece and of many, whole pieces of 8 and others; nf4's blocks of 64 that begin within a row, at a place
// within a piece, and a row that crosses groups of 256 blocks.
const Part kParts[] = {
    {{1, 1}, {0, 0}, {1, 1}},         {{40, 61}, {0, 0}, {40, 61}},       {{5, 64}, {0, 0}, {5, 64}},
    {{3, 2056}, {0, 0}, {3, 2056}},   {{9, 100}, {3, 37}, {5, 48}},       {{4, 130}, {1, 129}, {3, 1}},
    {{2, 40000}, {0, 3}, {2, 16800}}, {{2, 33000}, {1, 16320}, {1, 200}}, {{6, 24}, {0, 0}, {0, 24}},
};

TestTensor PartOf(ElementFormat format, const Part& part) {
  const TestTensor numbers = RandomTensor({DType::kF32, part.whole}, 3, 0.02);
  const std::span x(reinterpret_cast<const float*>(numbers.data()), static_cast<size_t>(part.whole.elements()));
  TestTensor t({format, part.shape});
  const std::vector<std::byte> bytes = Quantised(format, x, part.whole, part.at, part.shape);
  std::copy(bytes.begin(), bytes.end(), t.data());
  return t;
}

TEST(GpuDequantise, WritesTheNumbersOfEveryRow) {
  for (const ElementFormat format : kFormats) {
    for (const Part& part : kParts) {
      const TestTensor w = PartOf(format, part), x({DType::kBF16, {1, part.shape[1]}});
      const TestTensor want = InBf16(w);
      KernelSpec spec{.op = Op::kLinear, .inputs = {x.type(), w.type()}, .attributes = {{"dequantise", int64_t{1}}}};
      spec.outputs = *InferTypes(spec.op, spec.inputs, spec.attributes);
      spec.workspace = RuleOf(spec.op).workspace(spec.inputs, spec.outputs, spec.attributes, 1);
      for (const GpuTables& gpu : GpusUnderTest()) {
        const auto kernel = gpu.table->Make(spec);
        ASSERT_TRUE(kernel.ok()) << kernel.status().message();
        const TestTensor y(spec.outputs[0]), workspace({DType::kI32, {(spec.workspace.v + 3) / 4}});
        std::byte* const inputs[] = {x.data(), w.data()};
        std::byte* const outputs[] = {y.data()};
        const Status status = (*kernel)->Run({inputs, outputs, workspace.data()});
        ASSERT_TRUE(status.ok()) << status.message();
        EXPECT_TRUE(workspace.GuardIntact());
        const auto* const got = reinterpret_cast<const bf16*>(workspace.data());
        for (int64_t i = 0; i < part.shape.elements(); ++i) {
          ASSERT_EQ(got[i].bits, reinterpret_cast<const bf16*>(want.data())[i].bits)
              << ToString(format) << " " << w.type().ToString() << ", element " << i << " on " << gpu.table->name();
        }
      }
    }
  }
}

// A sum of `terms` products in f32 is off by at most terms + 2 roundings of the sum of magnitudes (scale, bias and acc
// included), and both its result and the twin's are rounded once more.
void ExpectProduct(Op op, const TestTensors& kept, const Attributes& attributes, int64_t terms) {
  TestTensors values, magnitudes;
  for (const TestTensor& t : kept) {
    values.push_back(InBf16(t));
    magnitudes.push_back(Absolute(t));
  }
  Attributes first = attributes;
  first.Set("dequantise", int64_t{1});
  const TestTensors want = RunReference({op, attributes, &kept});
  const TestTensors scale = RunReference({op, attributes, &magnitudes});
  const double bound = static_cast<double>(terms + 4) * UnitRoundoff(DType::kF32) * 1.01;
  const std::string what = std::string(ToString(op)) + " " + kept[1].type().ToString();
  OnGpus({op, first, &kept}, what, [&](const TestTensors& got, const std::string& name) {
    ExpectNear(
        got[0], want[0], 2.02 * UnitRoundoff(DType::kBF16), [&](int64_t i) { return bound * scale[0].Get(i) + 1e-37; },
        name);
  });
  for (const GpuTables& gpu : GpusUnderTest()) {
    EXPECT_TRUE(RunKernel({op, first, &kept}, *gpu.table, /*fast=*/true, 1)[0].SameBits(
        RunKernel({op, attributes, &values}, *gpu.table, /*fast=*/true, 1)[0]))
        << what << " on " << gpu.table->name();
  }
}

TEST(GpuDequantise, ProductsHaveTheBitsOfTheWeightsBf16Values) {
  struct Dims {
    int64_t T, I, O;
  };
  for (const ElementFormat format : kFormats) {
    for (const auto& [T, I, O] : {Dims{1, 64, 5}, Dims{65, 33, 3}, Dims{17, 136, 200}, Dims{130, 72, 136}}) {
      const TestTensor x = RandomTensor({DType::kBF16, {T, I}}, 1), y = RandomTensor({DType::kBF16, {T, O}}, 4);
      TestTensors forward, backward;
      forward.push_back(x.Copy());
      forward.push_back(RandomQuantised(format, {O, I}, 2));
      forward.push_back(RandomTensor({DType::kBF16, {O}}, 3));
      forward.push_back(y.Copy());
      ExpectProduct(Op::kLinear, forward, {{"bias", int64_t{1}}, {"acc", int64_t{1}}, {"scale", 0.7}}, I);
      backward.push_back(y.Copy());
      backward.push_back(RandomQuantised(format, {O, I}, 2));
      ExpectProduct(Op::kLinearDx, backward, {{"scale", 0.5}}, O);
      backward.push_back(x.Copy());
      ExpectProduct(Op::kLinearDx, backward, {{"acc", int64_t{1}}}, O);
    }
  }
}

// Losses and gradients of a head of int8 rows, too, also where a chunk follows another.
TEST(GpuDequantise, TheLossHasTheBitsOfTheHeadsBf16Values) {
  for (const LossCase& c : kLossCases) {
    if (c.grad_w) continue;
    LossRun kept(c, DType::kBF16), values(c, DType::kBF16);
    KeepHeadAsInt8(c, &kept, &values);
    Attributes first = kept.attributes;
    first.Set("dequantise", int64_t{1});
    for (const GpuTables& gpu : GpusUnderTest()) {
      const TestTensors got = RunKernel({Op::kLinearCrossEntropy, first, &kept.inputs}, *gpu.table, /*fast=*/true, 1);
      const TestTensors want =
          RunKernel({Op::kLinearCrossEntropy, values.attributes, &values.inputs}, *gpu.table, /*fast=*/true, 1);
      for (size_t o = 0; o < want.size(); ++o) {
        EXPECT_TRUE(got[o].SameBits(want[o])) << c.name << " output " << o << " on " << gpu.table->name();
      }
    }
  }
}

TEST(GpuDequantise, AnEmbeddingGivesTheNumbersOfInt8Rows) {
  for (const auto& [V, D] : {std::pair<int64_t, int64_t>{1, 1}, {30, 61}, {50, 72}, {9, 2056}}) {
    TestTensors inputs;
    inputs.push_back(RandomQuantised(ElementFormat::Int8Rows(), {V, D}, 1));
    inputs.emplace_back(TensorType{DType::kI32, {11}});
    for (int64_t t = 0; t < 11; ++t) inputs[1].Set(t, static_cast<double>(t * 7 % V));
    // The whole table, and a part of one: rows that others hold are zeros.
    for (const Attributes& a : {Attributes{}, {{"begin", V}, {"whole", 3 * V}, {"offset", 2 * V - 1 - V / 2}}}) {
      const TestTensors want = RunReference({Op::kEmbedding, a, &inputs});
      for (const GpuTables& gpu : GpusUnderTest()) {
        EXPECT_TRUE(RunKernel({Op::kEmbedding, a, &inputs}, *gpu.table, /*fast=*/true, 1)[0].SameBits(want[0]))
            << V << " rows of " << D << " on " << gpu.table->name();
      }
    }
  }
}

TEST(GpuDequantise, AWeightWithoutScratchForItsNumbersIsRefused) {
  for (const GpuTables& gpu : GpusUnderTest()) {
    KernelSpec spec{.op = Op::kLinear, .inputs = {{DType::kBF16, {2, 8}}, {ElementFormat::Nf4(), {4, 8}}}};
    spec.outputs = *InferTypes(spec.op, spec.inputs, spec.attributes);
    const auto kernel = gpu.table->Make(spec);
    ASSERT_FALSE(kernel.ok());
    EXPECT_EQ(kernel.status().message(), "linear of nf4[4, 8] without scratch for its numbers");
  }
}

}  // namespace
}  // namespace temper::dequantise_test
