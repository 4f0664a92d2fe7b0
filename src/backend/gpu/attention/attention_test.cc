// attention and its backward, against their scalar twins.
#include <gtest/gtest.h>

#include "backend/cpu/attention/attention_bounds.h"
#include "backend/cpu/attention/attention_cached_scenes.h"
#include "backend/gpu/gpus_under_test.h"
#include "graph/named_ops.h"
#include "graph/ops/attention_scratch.h"

namespace temper::attention_test {
namespace {

struct Case {
  const char* name;
  std::vector<int64_t> documents;  // lengths
  int64_t heads, kv_heads, E, window;
  double spread = 1;  // of q and k: large ones make rows that look at one key
  double softcap = 0;

  int64_t tokens() const {
    int64_t T = 0;
    for (int64_t n : documents) T += n;
    return T;
  }
  AttentionShape shape() const {
    return {tokens(), heads, kv_heads, E, 1 / std::sqrt(static_cast<double>(E)), softcap};
  }
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {"one token", {1}, 2, 1, 32, 0},
      {"one short document", {11}, 2, 2, 64, 0},
      {"a tile", {32}, 1, 1, 16, 0},
      {"a tile and a token", {33}, 2, 1, 24, 0},
      {"documents that end within tiles and at their edges", {1, 1, 30, 32, 12, 60, 2, 33}, 4, 2, 32, 0},
      {"documents of one token", std::vector<int64_t>(70, 1), 3, 1, 16, 0},
      {"window", {100, 20, 5}, 2, 2, 48, 37},
      {"window of one", {40}, 2, 1, 16, 1},
      {"grouped, head_dim 80", {20, 31}, 8, 2, 80, 0},
      {"head_dim 128", {10, 50}, 2, 1, 128, 0},
      {"head_dim 128 over tiles of 64", {64, 1, 63, 70, 2}, 4, 1, 128, 0},
      {"head_dim 128, window", {150}, 2, 1, 128, 70},
      {"head_dim 128, grouped, over blocks of 128", {200, 57, 130, 3}, 4, 2, 128, 0},
      {"head_dim 64, one document over blocks of 128", {390}, 2, 2, 64, 0},
      {"head_dim 256", {9, 20}, 2, 1, 256, 0},
      {"odd head_dim", {37}, 1, 1, 7, 0},
      {"sharp", {100}, 2, 1, 64, 0, 6.0},
      {"capped", {37, 3}, 4, 2, 64, 0, 3.0, 2.0},
      {"capped, window, head_dim 256", {29}, 2, 1, 256, 20, 6.0, 50.0},
  };
  return cases;
}

struct Scene {
  Attributes attributes;
  TestTensors inputs;  // q, k, v, document_start

  Scene(const Case& c, DType dtype)
      : attributes({{"heads", c.heads}, {"kv_heads", c.kv_heads}, {"window", c.window}, {"scale", c.shape().scale}}) {
    if (c.softcap > 0) attributes.Set("softcap", c.softcap);
    const int64_t T = c.tokens();
    inputs.push_back(RandomTensor({dtype, {T, c.heads * c.E}}, 1, c.spread));
    inputs.push_back(RandomTensor({dtype, {T, c.kv_heads * c.E}}, 2, c.spread));
    inputs.push_back(RandomTensor({dtype, {T, c.kv_heads * c.E}}, 3));
    inputs.emplace_back(TensorType{DType::kI32, {T}});
    int64_t t = 0;
    for (int64_t n : c.documents) {
      for (int64_t i = 0; i < n; ++i) inputs[3].Set(t + i, static_cast<double>(t));
      t += n;
    }
  }
};

TestTensors Copies(const std::vector<const TestTensor*>& tensors) {
  TestTensors copies;
  for (const TestTensor* t : tensors) copies.push_back(t->Copy());
  return copies;
}

void CheckForward(DType dtype) {
  const double u = UnitRoundoff(dtype);
  for (const Case& c : Cases()) {
    const Scene s(c, dtype);
    const TwinRun run{Op::kAttention, s.attributes, &s.inputs};
    const TestTensors want = RunReference(run);
    TestTensors absolute = Copies({&s.inputs[0], &s.inputs[1], &s.inputs[2], &s.inputs[3]});
    absolute[2] = Absolute(s.inputs[2]);
    const TestTensors magnitude = RunReference({Op::kAttention, s.attributes, &absolute});  // sums of p |v|
    const double p_error = ProbabilityError(c.shape(), s.inputs[0], s.inputs[1]);
    const double p_rounding = dtype == DType::kBF16 ? 1.01 * u : 0;  // before matrix units weight the values
    OnGpus(run, std::string(c.name) + " " + std::string(ToString(dtype)),
           [&](const TestTensors& got, const std::string& what) {
             ExpectNear(
                 got[0], want[0], 2.02 * u,
                 [&](int64_t i) { return 1.02 * (2 * p_error + p_rounding + 1e-6) * magnitude[0].Get(i) + 1e-37; },
                 what + " o");
             ExpectNear(
                 got[1], want[1], 4 * UnitRoundoff(DType::kF32), [&](int64_t) { return p_error; }, what + " lse");
           });
  }
}

TEST(GpuAttention, MatchesTheScalarTwinInBf16) {
  CheckForward(DType::kBF16);
}
TEST(GpuAttention, MatchesTheScalarTwinInF32) {
  CheckForward(DType::kF32);
}

void CheckBackward(DType dtype, const std::vector<Case>& cases = Cases()) {
  for (const Case& c : cases) {
    const Scene s(c, dtype);
    const TestTensors made = RunReference({Op::kAttention, s.attributes, &s.inputs});
    const TestTensor d_o = RandomTensor(s.inputs[0].type(), 5);
    const TestTensors inputs =
        Copies({&d_o, &s.inputs[0], &s.inputs[1], &s.inputs[2], &made[0], &made[1], &s.inputs[3]});
    const TwinRun run{Op::kAttentionBackward, s.attributes, &inputs};
    const TestTensors want = RunReference(run);
    const BackwardBounds bounds = BoundsOf(c.shape(), inputs, [&](int64_t t) {
      const auto start = static_cast<int64_t>(s.inputs[3].Get(t));
      return std::pair(c.window > 0 ? std::max(start, t - c.window + 1) : start, t + 1);
    });
    const std::vector<double>* bound[] = {&bounds.d_q, &bounds.d_k, &bounds.d_v};
    OnGpus(run, std::string(c.name) + " " + std::string(ToString(dtype)),
           [&](const TestTensors& got, const std::string& what) {
             for (size_t o = 0; o < 3; ++o) {
               ExpectNear(
                   got[o], want[o], 2.02 * UnitRoundoff(dtype),
                   [&](int64_t i) { return 1.02 * (*bound[o])[static_cast<size_t>(i)] + 1e-30; },
                   what + " output " + std::to_string(o));
             }
           });
  }
}

TEST(GpuAttentionBackward, MatchesTheScalarTwinInBf16) {
  CheckBackward(DType::kBF16);
}
#if !defined(TEMPER_GPU_EMULATED)  // 840 blocks take half a minute there
TEST(GpuAttentionBackward, BlocksThatShareAKvHeadTakeSeveralHeadsEachInBf16) {
  const Case c{"4 heads in 2 parts", {2}, 560, 140, 16, 0};
  ASSERT_EQ(GpuAttentionScratchOf(DType::kBF16, c.tokens(), c.heads, c.kv_heads, c.E).parts, 2);
  CheckBackward(DType::kBF16, {c});
}
#endif
TEST(GpuAttentionBackward, MatchesTheScalarTwinInF32) {
  CheckBackward(DType::kF32);
}

TEST(GpuAttention, RefusesDocumentsThatDoNotNameTheirFirstToken) {
  const Case c{"", {4}, 1, 1, 16, 0};
  Scene s(c, DType::kF32);
  KernelSpec spec{.op = Op::kAttention, .attributes = s.attributes};
  for (const TestTensor& t : s.inputs) spec.inputs.push_back(t.type());
  spec.outputs = *RuleOf(spec.op).infer(spec.inputs, spec.attributes);
  if (GpuToSpoil() == nullptr) GTEST_SKIP() << "no GPU";
  TestTensor o(spec.outputs[0]), lse(spec.outputs[1]);
  std::vector<std::byte*> in, out = {o.data(), lse.data()};
  for (const TestTensor& t : s.inputs) in.push_back(t.data());
  const auto message = [&](std::vector<int> starts) {
    for (size_t i = 0; i < 4; ++i) s.inputs[3].Set(static_cast<int64_t>(i), starts[i]);
    const auto table = GpuToSpoil();
    const auto kernel = table->Make(spec);
    return kernel.ok() ? (*kernel)->Run({in.data(), out.data(), nullptr}).message() : kernel.status().message();
  };
  EXPECT_EQ(message({0, 0, 2, 2}), "");
  EXPECT_NE(message({-1, 0, 0, 0}).find("token 0"), std::string::npos);
  EXPECT_NE(message({0, 0, 0, 7}).find("token 3"), std::string::npos);
  EXPECT_NE(message({0, 1, 0, 0}).find("token 2"), std::string::npos);
  EXPECT_EQ(message({0, 0, 2, 2}), "");
}

// On GPUs pages hold rows, as the twin's do.
TEST(GpuAttentionCached, MatchesTheScalarTwin) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const CachedCase& c : CachedCases()) {
      if (c.sink || c.W > 0 || c.E > 256 || c.slope != 0) continue;
      const CachedTwin twin = TwinOf(c, dtype);
      for (size_t i = 0; i < c.steps.size(); ++i) {
        const double relative = 64 * static_cast<double>(c.E + 8) * UnitRoundoff(DType::kF32);  // as of CPUs in f32
        const TwinRun run{Op::kAttentionCached, AttributesOf(c), &twin.inputs[i]};
        const TwinRun in_place{Op::kAttentionCached, AttributesOf(c), &twin.inputs[i], {{1, 3}, {2, 4}}};
        const auto check = [&](const TestTensors& got, const std::string& what) {
          ExpectNear(
              got[0], twin.o[i], 2.02 * UnitRoundoff(dtype),
              [&](int64_t at) { return relative * twin.magnitude[i].Get(at); }, what);
          EXPECT_TRUE(got[1].SameBits(twin.caches[i].first) && got[2].SameBits(twin.caches[i].second)) << what;
        };
        const std::string what = std::string(c.name) + " step " + std::to_string(i);
        OnGpus(run, what, check);
        OnGpus(in_place, what + " in place", check);
        // The same step of a block that reads the pages another one has written.
        Attributes attributes = AttributesOf(c);
        attributes.Set("stored", int64_t{1});
        TestTensors written;
        for (const TestTensor& t : twin.inputs[i]) written.push_back(t.Copy());
        written[3] = twin.caches[i].first.Copy();
        written[4] = twin.caches[i].second.Copy();
        OnGpus({Op::kAttentionCached, attributes, &written}, what + " stored",
               [&](const TestTensors& got, const std::string& name) {
                 ASSERT_EQ(got.size(), 1u) << name;
                 ExpectNear(
                     got[0], twin.o[i], 2.02 * UnitRoundoff(dtype),
                     [&](int64_t at) { return relative * twin.magnitude[i].Get(at); }, name);
               });
      }
    }
  }
}

TEST(GpuAttentionCached, PlacesThatDoNotExistAreNamedAndWriteNothing) {
  const CachedCase c{"", 1, 1, 16, 0, 2, {{{0, 2}}}};
  for (const auto& [input, value] : {std::pair(5, 2), {6, -1}, {6, 2147483647}, {7, -1}, {7, 2}}) {
    CachedSteps steps(c, DType::kF32);
    const auto [k, v] = steps.Caches();
    TestTensors inputs = steps.Next(c.steps[0], k, v);
    for (int64_t i = 0; i < inputs[static_cast<size_t>(input)].type().shape.elements(); ++i) {
      inputs[static_cast<size_t>(input)].Set(i, value);
    }
    KernelSpec spec{.op = Op::kAttentionCached, .attributes = AttributesOf(c)};
    for (const TestTensor& t : inputs) spec.inputs.push_back(t.type());
    spec.outputs = *InferTypes(spec.op, spec.inputs, spec.attributes);
    const auto table = GpuToSpoil();
    if (table == nullptr) GTEST_SKIP() << "no GPU";
    const auto kernel = table->Make(spec);
    ASSERT_TRUE(kernel.ok());
    TestTensors outputs;
    for (const TensorType& t : spec.outputs) outputs.emplace_back(t);
    std::vector<std::byte*> in, out;
    for (const TestTensor& t : inputs) in.push_back(t.data());
    for (const TestTensor& t : outputs) out.push_back(t.data());
    const Status status = (*kernel)->Run({in.data(), out.data(), nullptr});
    EXPECT_NE(status.message().find("has no place in a cache of 2 slots of 64 tokens"), std::string::npos)
        << input << ": " << status.message();
    for (const TestTensor& t : outputs) EXPECT_TRUE(t.GuardIntact());
    EXPECT_TRUE(outputs[1].SameBits(inputs[3])) << "the cache is what it was";
  }
}

// Of attention with a sink, with last keys, with ALiBi, and of values that are not as wide as keys.
TEST(GpuAttention, WhatOnlyCpusComputeIsRefusedByName) {
  const auto table = GpuToSpoil();
  if (table == nullptr) GTEST_SKIP() << "no GPU";
  const TensorType q{DType::kF32, {4, 32}}, v{DType::kF32, {4, 16}}, index{DType::kI32, {4}}, sink{DType::kF32, {1}};
  const Attributes plain = {{"heads", int64_t{1}}, {"kv_heads", int64_t{1}}, {"scale", 1.0}};
  Attributes with_sink = plain, with_last = plain;
  with_sink.Set("sink", int64_t{1});
  with_last.Set("last", int64_t{1});
  Attributes with_slopes = plain;
  with_slopes.Set("slopes", std::vector<double>{0.5});
  for (const auto& [inputs, attributes] : {std::pair(Types{q, q, v, index}, plain),
                                           {Types{q, q, q, index, sink}, with_sink},
                                           {Types{q, q, q, index, index}, with_last},
                                           {Types{q, q, q, index}, with_slopes}}) {
    KernelSpec spec{.op = Op::kAttention, .inputs = inputs, .attributes = attributes};
    spec.outputs = *InferTypes(spec.op, spec.inputs, spec.attributes);
    const auto kernel = table->Make(spec);
    ASSERT_FALSE(kernel.ok());
    EXPECT_EQ(kernel.status().code(), StatusCode::kUnsupported);
    EXPECT_NE(kernel.status().message().find("attention of f32[4, 32]"), std::string::npos);
  }
}

TEST(GpuAttention, WiderHeadsAreRefusedByName) {
  const Case c{"", {4}, 1, 1, 264, 0};
  const Scene s(c, DType::kF32);
  KernelSpec spec{.op = Op::kAttention, .attributes = s.attributes};
  for (const TestTensor& t : s.inputs) spec.inputs.push_back(t.type());
  spec.outputs = *RuleOf(spec.op).infer(spec.inputs, spec.attributes);
  const auto table = GpuToSpoil();
  if (table == nullptr) GTEST_SKIP() << "no GPU";
  const auto kernel = table->Make(spec);
  ASSERT_FALSE(kernel.ok());
  EXPECT_EQ(kernel.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(kernel.status().message().find("attention of f32[4, 264]"), std::string::npos);
}

}  // namespace
}  // namespace temper::attention_test
