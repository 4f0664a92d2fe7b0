// attention_cached against its scalar twin, and against itself: what a sequence gets depends on no other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "backend/cpu/attention/attention_cached_scenes.h"
#include "graph/named_ops.h"

namespace temper::attention_cached_test {
namespace {

std::string Name(const CachedCase& c, DType dtype, Isa isa) {
  return std::string(c.name) + " " + std::string(ToString(dtype)) + " on " + std::string(ToString(isa));
}

TEST(AttentionCached, MatchesTheScalarTwin) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const CachedCase& c : CachedCases()) {
      const CachedTwin twin = TwinOf(c, dtype);
      for (const Isa isa : RunnableIsas()) {
        if (isa == Isa::kScalar) continue;
        const std::vector<std::pair<int, int>> in_place = {{1, 3}, {2, 4}};
        CachedSteps steps(c, dtype);
        auto [k, v] = steps.Caches();
        for (size_t i = 0; i < c.steps.size(); ++i) {
          const std::string what = Name(c, dtype, isa) + " step " + std::to_string(i);
          const TestTensors inputs = steps.Next(c.steps[i], k, v);
          TestTensors one = RunFast({Op::kAttentionCached, AttributesOf(c), &inputs}, isa, 1);
          ExpectNear(
              one[0], twin.o[i], 2.02 * UnitRoundoff(dtype),
              [&](int64_t at) { return CachedError(c, dtype) * twin.magnitude[i].Get(at); }, what);
          for (const int threads : {1, 2, 3}) {
            const TestTensors again = RunFast({Op::kAttentionCached, AttributesOf(c), &inputs, in_place}, isa, threads);
            for (size_t o = 0; o < 3; ++o) EXPECT_TRUE(again[o].SameBits(one[o])) << what << " threads " << threads;
          }
          k = std::move(one[1]);
          v = std::move(one[2]);
        }
      }
    }
  }
}

// What another block has put into the pages gives the same bits as what is put there now.
TEST(AttentionCached, ReadsPagesThatAreWritten) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const CachedCase& c : CachedCases()) {
      CachedSteps steps(c, dtype);
      auto [k, v] = steps.Caches();
      Attributes stored = AttributesOf(c);
      stored.Set("stored", int64_t{1});
      for (size_t i = 0; i < c.steps.size(); ++i) {
        const TestTensors inputs = steps.Next(c.steps[i], k, v);
        const TestTensors twin = RunReference({Op::kAttentionCached, AttributesOf(c), &inputs});
        const auto over = [&](const TestTensors& caches) {
          TestTensors operands;
          for (const TestTensor& input : inputs) operands.push_back(input.Copy());
          operands[3] = caches[1].Copy();
          operands[4] = caches[2].Copy();
          return operands;
        };
        const TestTensors pages_of_twin = over(twin);
        const TestTensors again = RunReference({Op::kAttentionCached, stored, &pages_of_twin});
        ASSERT_EQ(again.size(), 1u);
        EXPECT_TRUE(again[0].SameBits(twin[0])) << Name(c, dtype, Isa::kScalar) << " step " << i;
        TestTensors written;
        for (const Isa isa : RunnableIsas()) {
          if (isa == Isa::kScalar) continue;
          const std::string what = Name(c, dtype, isa) + " step " + std::to_string(i);
          written = RunFast({Op::kAttentionCached, AttributesOf(c), &inputs}, isa, 1);
          const TestTensors pages = over(written);
          for (const int threads : {1, 2}) {
            const TestTensors read = RunFast({Op::kAttentionCached, stored, &pages}, isa, threads);
            ASSERT_EQ(read.size(), 1u);
            EXPECT_TRUE(read[0].SameBits(written[0])) << what << " threads " << threads;
          }
        }
        if (written.empty()) return;
        k = std::move(written[1]);
        v = std::move(written[2]);
      }
    }
  }
}

// Each sequence fed alone, a token at a time.
TEST(AttentionCached, ATokenGetsTheSameBitsWhoeverElseIsInItsStep) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const CachedCase& c : CachedCases()) {
      for (const Isa isa : RunnableIsas()) {
        if (isa == Isa::kScalar) continue;
        const Attributes attributes = AttributesOf(c);
        CachedSteps together(c, dtype), alone(c, dtype);
        auto [k, v] = together.Caches();
        auto [own_k, own_v] = alone.Caches();
        for (const auto& runs : c.steps) {
          const TestTensors inputs = together.Next(runs, k, v);
          TestTensors all = RunFast({Op::kAttentionCached, attributes, &inputs}, isa, 1);
          k = std::move(all[1]);
          v = std::move(all[2]);
          int64_t at = 0;
          for (const auto& [slot, tokens] : runs) {
            for (int64_t i = 0; i < tokens; ++i, ++at) {
              if (slot < 0) continue;
              const TestTensors own = alone.Next({{slot, 1}}, own_k, own_v);
              TestTensors one = RunFast({Op::kAttentionCached, attributes, &own}, isa, 1);
              own_k = std::move(one[1]);
              own_v = std::move(one[2]);
              const int64_t width = c.heads * c.v_width();
              for (int64_t e = 0; e < width; ++e) {
                ASSERT_EQ(all[0].Get(at * width + e), one[0].Get(e))
                    << Name(c, dtype, isa) << " token " << at << " of slot " << slot << ", element " << e;
              }
            }
          }
        }
      }
    }
  }
}

TEST(AttentionCached, RefusesPlacesThatDoNotExist) {
  const CachedCase c{"", 1, 1, 16, 0, 2, {{{0, 2}, {1, 1}}}};
  CachedSteps steps(c, DType::kF32);
  const auto [k, v] = steps.Caches();
  TestTensors inputs = steps.Next(c.steps[0], k, v);
  KernelSpec spec{.op = Op::kAttentionCached, .attributes = AttributesOf(c)};
  for (const TestTensor& t : inputs) spec.inputs.push_back(t.type());
  spec.outputs = *InferTypes(spec.op, spec.inputs, spec.attributes);
  spec.workspace = RuleOf(spec.op).workspace(spec.inputs, spec.outputs, spec.attributes, 1);
  const auto kernels = MakeCpuKernels({.threads = 1});
  for (KernelTable* table : {kernels.get(), &ReferenceKernels()}) {
    const auto kernel = *table->Make(spec);
    TestTensors outputs;
    for (const TensorType& t : spec.outputs) outputs.emplace_back(t);
    TestTensor workspace({DType::kF32, {spec.workspace.v / 4}});
    std::vector<std::byte*> in, out;
    for (const TestTensor& t : inputs) in.push_back(t.data());
    for (const TestTensor& t : outputs) out.push_back(t.data());
    const auto with = [&](size_t input, int64_t at, double value) {
      const double before = inputs[input].Get(at);
      inputs[input].Set(at, value);
      const StatusCode code = kernel->Run({in.data(), out.data(), workspace.data()}).code();
      inputs[input].Set(at, before);
      return code;
    };
    EXPECT_EQ(with(5, 0, 0), StatusCode::kOk);
    EXPECT_EQ(with(5, 0, 2), StatusCode::kInvalidArgument) << "a slot";
    EXPECT_EQ(with(6, 0, -1), StatusCode::kInvalidArgument) << "a place";
    EXPECT_EQ(with(6, 0, kCachePage), StatusCode::kInvalidArgument) << "a place";
    EXPECT_EQ(with(7, 1, -1), StatusCode::kInvalidArgument) << "a page";
    EXPECT_EQ(with(7, 1, 2), StatusCode::kInvalidArgument) << "a page";
  }
}

}  // namespace
}  // namespace temper::attention_cached_test
