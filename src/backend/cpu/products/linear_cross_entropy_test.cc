// linear_cross_entropy against its scalar twin.
#include <gtest/gtest.h>

#include <string>

#include "backend/cpu/products/loss_twin.h"
#include "graph/named_ops.h"

namespace temper::linear_cross_entropy_test {
namespace {

void CheckLoss(const LossCase& c, DType dtype, const LossRun& run) {
  const Attributes& a = run.attributes;
  const TestTensors& inputs = run.inputs;
  const TestTensors want = RunReference({Op::kLinearCrossEntropy, a, &inputs});
  for (Isa isa : RunnableIsas()) {
    if (isa == Isa::kScalar) continue;
    const std::string what =
        std::string(c.name) + " " + std::string(ToString(dtype)) + " on " + std::string(ToString(isa));
    const TestTensors one = RunFast({Op::kLinearCrossEntropy, a, &inputs}, isa, 1);
    ASSERT_EQ(one.size(), want.size()) << what;
    for (size_t o = 0; o < want.size(); ++o) {
      ExpectNear(
          one[o], want[o], 2.02 * UnitRoundoff(want[o].type().dtype), [&](int64_t i) { return run.Bound(o, i); },
          what + " output " + std::to_string(o));
    }
    for (int threads : {1, 2, 3}) {
      const TestTensors again = RunFast({Op::kLinearCrossEntropy, a, &inputs, run.in_place}, isa, threads);
      for (size_t o = 0; o < want.size(); ++o) {
        EXPECT_TRUE(again[o].SameBits(one[o])) << what << " output " << o << " threads " << threads;
      }
    }
  }
}

TEST(LinearCrossEntropy, MatchesTheScalarTwinInF32) {
  for (const LossCase& c : kLossCases) CheckLoss(c, DType::kF32, LossRun(c, DType::kF32));
}
TEST(LinearCrossEntropy, MatchesTheScalarTwinInBF16) {
  for (const LossCase& c : kLossCases) CheckLoss(c, DType::kBF16, LossRun(c, DType::kBF16));
}

// A head of int8 rows is dequantised while it is packed: losses and gradients have the bits of its bf16 values', and
// are the twin's within rounding.
TEST(LinearCrossEntropy, ReadsAHeadOfInt8RowsAsItsBf16Values) {
  int cases = 0;
  for (const LossCase& c : kLossCases) {
    if (c.grad_w) continue;
    ++cases;
    LossRun kept(c, DType::kBF16), values(c, DType::kBF16);
    KeepHeadAsInt8(c, &kept, &values);
    CheckLoss(c, DType::kBF16, kept);
    for (const Isa isa : RunnableIsas()) {
      const TestTensors want = RunFast({Op::kLinearCrossEntropy, values.attributes, &values.inputs}, isa, 2);
      const TestTensors got = RunFast({Op::kLinearCrossEntropy, kept.attributes, &kept.inputs}, isa, 2);
      for (size_t o = 0; o < want.size(); ++o) {
        EXPECT_TRUE(got[o].SameBits(want[o])) << c.name << " output " << o << " on " << ToString(isa);
      }
    }
  }
  EXPECT_GE(cases, 8);
}

// A frozen head, packed once for the logits and once for d_x.
TEST(LinearCrossEntropy, APackedHeadChangesNoBit) {
  for (const LossCase& c : kLossCases) {
    if (c.grad_w) continue;
    const LossRun run(c, DType::kBF16);
    Attributes attributes = run.attributes;
    const PackedInput reads = RuleOf(Op::kLinearCrossEntropy).packed;
    TestTensors inputs;
    for (const TestTensor& t : run.inputs) {
      const bool is_head = static_cast<int>(inputs.size()) == reads.input;
      inputs.push_back(is_head ? PackedAs(reads.layout, t) : t.Copy());
    }
    if (attributes.Flag(reads.gradient)) {
      inputs.push_back(PackedAs(ElementLayout::kRowPairs, run.inputs[static_cast<size_t>(reads.input)]));
      attributes.Set(reads.of_gradient, int64_t{1});
    }
    for (const Isa isa : RunnableIsas()) {
      if (isa != Isa::kScalar && !ReadsPackedWeights(isa)) continue;
      const TestTensors want = RunFast({Op::kLinearCrossEntropy, run.attributes, &run.inputs}, isa, 1);
      for (const int threads : {1, 2}) {
        const TestTensors got = RunFast({Op::kLinearCrossEntropy, attributes, &inputs}, isa, threads);
        for (size_t o = 0; o < want.size(); ++o) {
          EXPECT_TRUE(got[o].SameBits(want[o])) << c.name << " output " << o << " on " << ToString(isa);
        }
      }
      if (c.weighted || c.smoothing > 0) continue;
      LogprobRun logprob(run);
      const TestTensors of_rows = RunFast({Op::kTokenLogprob, logprob.attributes, &logprob.inputs}, isa, 1);
      logprob.inputs[static_cast<size_t>(reads.input)] =
          PackedAs(reads.layout, run.inputs[static_cast<size_t>(reads.input)]);
      EXPECT_TRUE(RunFast({Op::kTokenLogprob, logprob.attributes, &logprob.inputs}, isa, 1)[0].SameBits(of_rows[0]));
    }
  }
}

// So memory may decide how large it is.
TEST(LinearCrossEntropy, TheSizeOfAChunkChangesNoBit) {
  const LossCase cases[] = {
      {"all trained", 301, 133, 72, 0, 0.8, 512, true, true, false, false, false},
      {"accumulated", 300, 95, 70, 0, 1.0, 512, true, true, false, false, true},
      {"LoRA on the head", 299, 150, 80, 8, 0.7, 512, true, true, true, true, true},
      {"deep sums", 1100, 70, 66, 0, 1.0, 2048, true, true, false, false, true},
      {"bias", 301, 133, 72, 0, 0.8, 512, true, true, false, false, true, false, 0, 0, true, true},
  };
  for (const LossCase& c : cases) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const LossRun run(c, dtype);
      for (const Isa isa : RunnableIsas()) {
        const TestTensors whole = RunFast({Op::kLinearCrossEntropy, run.attributes, &run.inputs, run.in_place}, isa, 1);
        for (const int64_t chunk : {256, 128, 64, 32, 30}) {
          if (chunk % 32 != 0 && isa == Isa::kAmxBf16) continue;  // it multiplies 32 rows at a time
          Attributes cut = run.attributes;
          cut.Set("chunk", chunk);
          const TestTensors got = RunFast({Op::kLinearCrossEntropy, cut, &run.inputs, run.in_place}, isa, 1);
          for (size_t o = 0; o < whole.size(); ++o) {
            EXPECT_TRUE(got[o].SameBits(whole[o])) << c.name << " " << ToString(dtype) << " output " << o
                                                   << " in chunks of " << chunk << " on " << ToString(isa);
          }
        }
      }
    }
  }
}

TEST(LinearCrossEntropy, AWeightOfOneChangesNoBit) {
  for (const LossCase& c : kLossCases) {
    if (c.weighted) continue;
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const LossRun plain(c, dtype);
      LossCase also = c;
      also.weighted = true;
      LossRun ones(also, dtype);
      TestTensor& weight = ones.inputs[static_cast<size_t>(LossOperands(ones.attributes).weight)];
      for (int64_t t = 0; t < c.T; ++t) weight.Set(t, 1);
      for (const Isa isa : RunnableIsas()) {
        const TestTensors want = RunFast({Op::kLinearCrossEntropy, plain.attributes, &plain.inputs}, isa, 2);
        const TestTensors got = RunFast({Op::kLinearCrossEntropy, ones.attributes, &ones.inputs}, isa, 2);
        for (size_t o = 0; o < want.size(); ++o) {
          EXPECT_TRUE(got[o].SameBits(want[o])) << c.name << " " << ToString(dtype) << " output " << o;
        }
      }
    }
  }
}

// As torch.argmax: of words with the same logit the first counts, and one that is a little less does not. Words 3, 2100
// and 4400 have the largest logits of all rows, in three pieces of the row and with any cap; their weights are powers
// of two, so that nothing is rounded.
TEST(LinearCrossEntropy, TheFirstOfEqualLogitsIsTheLargest) {
  constexpr int64_t kWords = 4500;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const double cap : {0.0, 1.0}) {
      TestTensors inputs;
      inputs.emplace_back(TensorType{dtype, {5, 4}});
      inputs.emplace_back(TensorType{dtype, {kWords, 4}});
      inputs.emplace_back(TensorType{DType::kI32, {5}});
      for (int64_t i = 0; i < 5 * 4; ++i) inputs[0].Set(i, 4);
      for (int64_t i = 0; i < kWords * 4; ++i) inputs[1].Set(i, 1);
      for (const int64_t word : {3, 2100, 4400}) {
        for (int64_t i = 0; i < 4; ++i) inputs[1].Set(word * 4 + i, 2);
      }
      const int64_t targets[] = {3, 2100, -1, 4400, 7};
      for (int64_t t = 0; t < 5; ++t) inputs[2].Set(t, static_cast<double>(targets[t]));
      Attributes attributes = {{"correct", int64_t{1}}};
      if (cap > 0) attributes.Set("softcap", cap);
      for (const Isa isa : RunnableIsas()) {
        const TestTensors got = RunFast({Op::kLinearCrossEntropy, attributes, &inputs}, isa, 2);
        ASSERT_EQ(got.size(), 2u);
        for (int64_t t = 0; t < 5; ++t) EXPECT_EQ(got[1].Get(t), t == 0 ? 1 : 0) << t << " on " << ToString(isa);
      }
    }
  }
}

// It is one more output: the others keep their bits.
TEST(LinearCrossEntropy, AskingForHitsChangesNoBit) {
  int cases = 0;
  for (const LossCase& c : kLossCases) {
    if (!c.correct) continue;
    ++cases;
    const LossRun run(c, DType::kBF16);
    Attributes plain = run.attributes;
    plain.Set("correct", int64_t{0});
    for (const Isa isa : RunnableIsas()) {
      const TestTensors want = RunFast({Op::kLinearCrossEntropy, plain, &run.inputs}, isa, 2);
      const TestTensors got = RunFast({Op::kLinearCrossEntropy, run.attributes, &run.inputs}, isa, 2);
      ASSERT_EQ(got.size(), want.size() + 1);
      for (size_t o = 0; o < want.size(); ++o) EXPECT_TRUE(got[o + (o > 0)].SameBits(want[o])) << c.name;
    }
  }
  EXPECT_GE(cases, 5);
}

TEST(TokenLogprob, IsTheLossWithTheOtherSign) {
  for (const LossCase& c : kLossCases) {
    if (c.weighted || c.smoothing > 0) continue;
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const LossRun loss(c, dtype);
      const LogprobRun run(loss);
      const TestTensors twin = RunReference({Op::kTokenLogprob, run.attributes, &run.inputs});
      for (const Isa isa : RunnableIsas()) {
        if (isa == Isa::kScalar) continue;
        const TestTensors want = RunFast({Op::kLinearCrossEntropy, loss.attributes, &loss.inputs}, isa, 1);
        for (const int threads : {1, 3}) {
          const TestTensors got = RunFast({Op::kTokenLogprob, run.attributes, &run.inputs}, isa, threads);
          ASSERT_EQ(got.size(), 1u);
          for (int64_t t = 0; t < c.T; ++t) EXPECT_EQ(got[0].Get(t), -want[0].Get(t)) << c.name << " " << t;
          ExpectNear(
              got[0], twin[0], 2.02 * UnitRoundoff(DType::kF32), [&](int64_t t) { return loss.Bound(0, t); }, c.name);
        }
      }
    }
  }
}

TEST(LinearCrossEntropy, RefusesATargetBeyondTheVocabulary) {
  TestTensors inputs;
  inputs.push_back(RandomTensor({DType::kF32, {2, 8}}, 1));
  inputs.push_back(RandomTensor({DType::kF32, {5, 8}}, 2));
  inputs.emplace_back(TensorType{DType::kI32, {2}});
  inputs[2].Set(0, 4);
  inputs[2].Set(1, 5);
  KernelSpec spec{.op = Op::kLinearCrossEntropy, .threads = 1};
  for (const TestTensor& t : inputs) spec.inputs.push_back(t.type());
  spec.outputs = *RuleOf(spec.op).infer(spec.inputs, {});
  spec.workspace = RuleOf(spec.op).workspace(spec.inputs, spec.outputs, {}, 1);
  const auto table = MakeCpuKernels({.threads = 1});
  auto kernel = table->Make(spec);
  ASSERT_TRUE(kernel.ok());
  TestTensor loss(spec.outputs[0]), workspace({DType::kF32, {spec.workspace.v / 4}});
  std::vector<std::byte*> in = {inputs[0].data(), inputs[1].data(), inputs[2].data()}, out = {loss.data()};
  EXPECT_EQ((*kernel)->Run({in.data(), out.data(), workspace.data()}).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace temper::linear_cross_entropy_test
