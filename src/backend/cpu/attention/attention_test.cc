// attention and attention_backward against their scalar twins.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "backend/cpu/attention/attention_bounds.h"
#include "backend/cpu/attention/attention_ways.h"
#include "graph/named_ops.h"

namespace temper::attention_test {
namespace {

struct AttentionCase {
  const char* name;
  std::vector<int64_t> documents;  // lengths
  int64_t heads, kv_heads, E, window;
  double spread = 1;  // of q and k: large ones make rows that look at one key
  double softcap = 0;
  int64_t W = 0;      // of v; 0: E
  bool sink = false;  // one per head
  bool last = false;  // the first half of every document, rounded up, sees all of itself
  // ALiBi: of head h, slope / (h + 1), perhaps rounded.
  double slope = 0;
  bool rounded_slopes = false;

  int64_t v_width() const { return W > 0 ? W : E; }
};

const std::vector<AttentionCase>& Cases() {
  static const std::vector<AttentionCase> cases = {
      {"one token", {1}, 2, 1, 32, 0},
      {"one short document", {11}, 2, 2, 64, 0},
      {"one document of a block and a bit", {97}, 4, 2, 64, 0},
      {"documents of all sizes", {1, 1, 1, 40, 12, 130, 2, 95, 1, 33}, 6, 2, 32, 0},
      {"documents of one token", std::vector<int64_t>(70, 1), 3, 1, 16, 0},
      {"several segments of queries", {700, 13}, 2, 1, 32, 0},
      {"window", {300, 20, 5}, 2, 2, 48, 37},
      {"window of one", {60}, 2, 1, 16, 1},
      {"window wider than a block of keys", {640}, 1, 1, 16, 530},
      {"grouped, odd head_dim", {50, 61}, 8, 2, 80, 0},
      {"head_dim 128", {70, 150}, 2, 1, 128, 0},
      {"head_dim 256", {45}, 2, 1, 256, 0},
      {"head_dim 512", {97, 40}, 4, 1, 512, 0},
      {"sharp", {200}, 2, 1, 64, 0, 6.0},
      {"capped", {97, 40, 3}, 4, 2, 64, 0, 3.0, 2.0},
      {"capped, window, head_dim 256", {130}, 2, 1, 256, 50, 6.0, 50.0},
      {"keys a little wider than a piece of a head, capped", {50, 13}, 2, 1, 272, 20, 3.0, 2.0, 64},
      {"values wider than a piece of a head", {130}, 2, 2, 64, 0, 1, 0, 336},
      {"keys wider than values", {97, 40, 3}, 4, 4, 192, 0, 1, 0, 128},
      {"values wider than keys", {50, 130}, 4, 2, 48, 20, 1, 0, 80},
      {"a sink", {1, 97, 40, 3}, 4, 2, 64, 0, 1, 0, 0, true},
      {"a sink, several segments", {700, 13}, 2, 1, 32, 0, 1, 0, 0, true},
      {"a sink, window, capped, keys wider", {130, 20}, 6, 2, 96, 33, 3.0, 2.0, 64, true},
      {"last keys", {1, 200, 40, 3}, 4, 2, 64, 0, 1, 0, 0, false, true},
      {"last keys over segments, window, a sink", {700, 13}, 2, 1, 32, 530, 1, 0, 48, true, true},
      {"slopes", {1, 97, 40, 3}, 4, 4, 64, 0, 1, 0, 0, false, false, 2.0},
      {"gentle slopes, several segments, grouped", {700, 13}, 6, 2, 32, 0, 1, 0, 0, false, false, 0.01},
      {"rounded slopes", {300, 20, 5}, 3, 1, 48, 0, 1, 0, 0, false, false, 0.71, true},
  };
  return cases;
}

std::vector<double> SlopesOf(const AttentionCase& c) {
  std::vector<double> slopes;
  for (int64_t h = 0; h < c.heads; ++h) slopes.push_back(c.slope / static_cast<double>(h + 1));
  return slopes;
}

struct Scene {
  int64_t T = 0;
  Attributes attributes;
  TestTensor q, k, v, document_start;
  TestTensors options;  // sink, last

  TestTensors Inputs(const TestTensor& values) const {
    TestTensors inputs;
    for (const TestTensor* t : {&q, &k, &values, &document_start}) inputs.push_back(t->Copy());
    for (const TestTensor& t : options) inputs.push_back(t.Copy());
    return inputs;
  }
};

Scene SceneOf(const AttentionCase& c, DType dtype) {
  int64_t T = 0;
  for (int64_t n : c.documents) T += n;
  Scene s{T,
          {{"heads", c.heads},
           {"kv_heads", c.kv_heads},
           {"window", c.window},
           {"scale", 1 / std::sqrt(static_cast<double>(c.E))}},
          RandomTensor({dtype, {T, c.heads * c.E}}, 1, c.spread),
          RandomTensor({dtype, {T, c.kv_heads * c.E}}, 2, c.spread),
          RandomTensor({dtype, {T, c.kv_heads * c.v_width()}}, 3),
          TestTensor({DType::kI32, {T}}),
          {}};
  if (c.softcap > 0) s.attributes.Set("softcap", c.softcap);
  if (c.slope > 0) s.attributes.Set("slopes", SlopesOf(c));
  if (c.rounded_slopes) s.attributes.Set("rounded_slopes", int64_t{1});
  TestTensor last({DType::kI32, {T}});
  int64_t t = 0;
  for (int64_t n : c.documents) {
    for (int64_t i = 0; i < n; ++i) {
      s.document_start.Set(t + i, static_cast<double>(t));
      last.Set(t + i, static_cast<double>(t + std::max(i, (n + 1) / 2 - 1)));
    }
    t += n;
  }
  if (c.sink) {
    s.attributes.Set("sink", int64_t{1});
    s.options.push_back(RandomTensor({dtype, {c.heads}}, 9, 3));
  }
  if (c.last) {
    s.attributes.Set("last", int64_t{1});
    s.options.push_back(std::move(last));
  }
  return s;
}

std::string Name(const AttentionCase& c, DType dtype, const AttentionWay& way) {
  return std::string(c.name) + " " + std::string(ToString(dtype)) + " on " + way.name;
}

AttentionShape ShapeOf(const AttentionCase& c, const Scene& s) {
  double most = 0;
  for (int64_t h = 0; c.sink && h < c.heads; ++h) most = std::max(most, std::fabs(s.options[0].Get(h)));
  return {s.T, c.heads, c.kv_heads, c.E, s.attributes.Double("scale"), c.softcap, c.W, most, s.attributes};
}

TEST(Attention, MatchesTheScalarTwin) {
  for (DType dtype : {DType::kBF16, DType::kF32}) {
    const double u = UnitRoundoff(dtype);
    for (const AttentionCase& c : Cases()) {
      const Scene s = SceneOf(c, dtype);
      const TestTensors inputs = s.Inputs(s.v);
      const TwinRun run{Op::kAttention, s.attributes, &inputs};
      const TestTensors want = RunReference(run);
      // Sums of p |v|.
      const TestTensors absolute = s.Inputs(Absolute(s.v));
      const TestTensors magnitude = RunReference({Op::kAttention, s.attributes, &absolute});
      const double p_error = ProbabilityError(ShapeOf(c, s), s.q, s.k);
      for (const AttentionWay& way : AttentionWaysOf(dtype)) {
        const TestTensors one = way.run(run, 1);
        // bf16: probabilities are rounded before they meet v.
        const double relative = 2 * p_error + (dtype == DType::kBF16 ? 1.01 * u : 0) + 1e-6;
        ExpectNear(
            one[0], want[0], 2.02 * u, [&](int64_t i) { return 1.02 * relative * magnitude[0].Get(i) + 1e-37; },
            Name(c, dtype, way) + " o");
        ExpectNear(
            one[1], want[1], 4 * UnitRoundoff(DType::kF32), [&](int64_t) { return p_error; },
            Name(c, dtype, way) + " lse");
        for (int threads : {2, 3}) {
          const TestTensors more = way.run(run, threads);
          EXPECT_TRUE(more[0].SameBits(one[0]) && more[1].SameBits(one[1])) << Name(c, dtype, way) << threads;
        }
      }
    }
  }
}

TEST(AttentionBackward, MatchesTheScalarTwin) {
  for (DType dtype : {DType::kBF16, DType::kF32}) {
    for (const AttentionCase& c : Cases()) {
      const Scene s = SceneOf(c, dtype);
      const TestTensors forward = s.Inputs(s.v);
      const TestTensors made = RunReference({Op::kAttention, s.attributes, &forward});
      TestTensors inputs;
      inputs.push_back(RandomTensor(made[0].type(), 5));
      for (const TestTensor* t : {&s.q, &s.k, &s.v, &made[0], &made[1], &s.document_start}) inputs.push_back(t->Copy());
      for (const TestTensor& t : s.options) inputs.push_back(t.Copy());
      const TwinRun run{Op::kAttentionBackward, s.attributes, &inputs};
      const TestTensors want = RunReference(run);
      const BackwardBounds bounds = BoundsOf(
          ShapeOf(c, s), inputs,
          [&](int64_t t) {
            const auto start = static_cast<int64_t>(s.document_start.Get(t));
            const int64_t last = c.last ? static_cast<int64_t>(s.options.back().Get(t)) : t;
            return std::pair(c.window > 0 ? std::max(start, t - c.window + 1) : start, last + 1);
          },
          c.sink ? &s.options[0] : nullptr);
      const std::vector<double>* bound[] = {&bounds.d_q, &bounds.d_k, &bounds.d_v, &bounds.d_sink};
      for (const AttentionWay& way : AttentionWaysOf(dtype)) {
        const TestTensors one = way.run(run, 1);
        ASSERT_EQ(one.size(), c.sink ? 4u : 3u);
        for (size_t o = 0; o < one.size(); ++o) {
          ExpectNear(
              one[o], want[o], 2.02 * UnitRoundoff(one[o].type().dtype),
              [&](int64_t i) { return 1.02 * (*bound[o])[static_cast<size_t>(i)] + 1e-30; },
              Name(c, dtype, way) + " output " + std::to_string(o));
          for (int threads : {2, 3}) {
            EXPECT_TRUE(way.run(run, threads)[o].SameBits(one[o])) << Name(c, dtype, way) << threads;
          }
        }
      }
    }
  }
}

TEST(Attention, RefusesLastKeysThatFallOrLeaveTheirDocument) {
  const AttentionCase c{"", {3, 2}, 1, 1, 16, 0, 1, 0, 0, false, true};
  Scene s = SceneOf(c, DType::kF32);
  KernelSpec spec{.op = Op::kAttention, .attributes = s.attributes};
  TestTensors inputs = s.Inputs(s.v);
  for (const TestTensor& t : inputs) spec.inputs.push_back(t.type());
  spec.outputs = *RuleOf(spec.op).infer(spec.inputs, spec.attributes);
  spec.workspace = RuleOf(spec.op).workspace(spec.inputs, spec.outputs, spec.attributes, 1);
  auto kernel = MakeCpuKernels({.threads = 1})->Make(spec);
  ASSERT_TRUE(kernel.ok());
  TestTensor o(spec.outputs[0]), lse(spec.outputs[1]), workspace({DType::kF32, {spec.workspace.v / 4}});
  std::vector<std::byte*> in, out = {o.data(), lse.data()};
  for (const TestTensor& t : inputs) in.push_back(t.data());
  const auto run = [&](std::vector<int> last) {
    for (size_t i = 0; i < last.size(); ++i) inputs[4].Set(static_cast<int64_t>(i), last[i]);
    return (*kernel)->Run({in.data(), out.data(), workspace.data()}).code();
  };
  EXPECT_EQ(run({1, 1, 2, 4, 4}), StatusCode::kOk);
  EXPECT_EQ(run({2, 1, 2, 4, 4}), StatusCode::kCorrupt);
  EXPECT_EQ(run({0, 0, 2, 4, 4}), StatusCode::kCorrupt);
  EXPECT_EQ(run({0, 1, 3, 4, 4}), StatusCode::kCorrupt);
  EXPECT_EQ(run({0, 1, 2, 3, 5}), StatusCode::kCorrupt);
}

TEST(Attention, RefusesDocumentsThatDoNotNameTheirFirstToken) {
  TestTensors inputs;
  inputs.push_back(RandomTensor({DType::kF32, {4, 16}}, 1));
  inputs.push_back(RandomTensor({DType::kF32, {4, 16}}, 2));
  inputs.push_back(RandomTensor({DType::kF32, {4, 16}}, 3));
  inputs.emplace_back(TensorType{DType::kI32, {4}});
  KernelSpec spec{.op = Op::kAttention,
                  .attributes = {{"heads", int64_t{1}}, {"kv_heads", int64_t{1}}, {"scale", 1.0}}};
  for (const TestTensor& t : inputs) spec.inputs.push_back(t.type());
  spec.outputs = *RuleOf(spec.op).infer(spec.inputs, spec.attributes);
  spec.workspace = RuleOf(spec.op).workspace(spec.inputs, spec.outputs, spec.attributes, 1);
  auto kernel = MakeCpuKernels({.threads = 1})->Make(spec);
  ASSERT_TRUE(kernel.ok());
  TestTensor o(spec.outputs[0]), lse(spec.outputs[1]), workspace({DType::kF32, {spec.workspace.v / 4}});
  std::vector<std::byte*> in, out = {o.data(), lse.data()};
  for (const TestTensor& t : inputs) in.push_back(t.data());
  const auto run = [&](std::vector<int> starts) {
    for (size_t i = 0; i < 4; ++i) inputs[3].Set(static_cast<int64_t>(i), starts[i]);
    return (*kernel)->Run({in.data(), out.data(), workspace.data()}).code();
  };
  EXPECT_EQ(run({0, 0, 2, 2}), StatusCode::kOk);
  EXPECT_EQ(run({-1, 0, 0, 0}), StatusCode::kCorrupt);
  EXPECT_EQ(run({0, 0, 0, 7}), StatusCode::kCorrupt);
  EXPECT_EQ(run({0, 1, 0, 3}), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace temper::attention_test
