// Steps of ring attention against their scalar twins: every rank's queries on every rank's keys.
#include <gtest/gtest.h>

#include <string>

#include "backend/cpu/attention/attention_step_scenes.h"
#include "backend/cpu/attention/attention_ways.h"
#include "graph/named_ops.h"

namespace temper::attention_step_test {
namespace {

TEST(AttentionStep, MatchesTheScalarTwin) {
  const double u32 = UnitRoundoff(DType::kF32);
  ForEachScene([&](const StepScene& s, const std::string& name) {
    const DType dtype = s.q.type().dtype;
    const TestTensor values = Absolute(s.v);
    TestTensors inputs = Copies({&s.q, &s.k, &s.v, &s.document_start});
    TestTensors absolute = Copies({&s.q, &s.k, &values, &s.document_start});
    double lse = 0;
    for (TestTensor& t : Before(s)) {
      absolute.push_back(absolute.size() == 4 ? Absolute(t) : t.Copy());
      inputs.push_back(std::move(t));
    }
    for (int64_t i = 0; inputs.size() > 4 && i < s.shape.tokens * s.shape.heads; ++i) {
      lse = std::max(lse, std::fabs(inputs[5].Get(i)));
    }
    const TwinRun run{Op::kAttentionStep, s.attributes, &inputs};
    const TestTensors want = RunReference(run);
    const TestTensors magnitude = RunReference({Op::kAttentionStep, s.attributes, &absolute});  // sums of p |v|
    // The lse of before is divided by the scale and multiplied again.
    const double p_error = ProbabilityError(s.shape, s.q, s.k) + 6 * u32 * lse;
    // bf16: probabilities are rounded before they meet v.
    const double relative = 2 * p_error + (dtype == DType::kBF16 ? 1.01 * UnitRoundoff(dtype) : 0) + 1e-6;
    std::vector<std::pair<int, int>> in_place;
    if (inputs.size() > 4) in_place = {{0, 4}, {1, 5}};
    for (const AttentionWay& way : AttentionWaysOf(dtype)) {
      const std::string what = name + " on " + way.name;
      const TestTensors one = way.run(run, 1);
      ExpectNear(
          one[0], want[0], 4 * u32, [&](int64_t i) { return 1.02 * relative * magnitude[0].Get(i) + 1e-37; },
          what + " o");
      ExpectNear(
          one[1], want[1], 4 * u32, [&](int64_t) { return p_error; }, what + " lse");
      const TestTensors more = way.run({Op::kAttentionStep, s.attributes, &inputs, in_place}, 3);
      EXPECT_TRUE(more[0].SameBits(one[0]) && more[1].SameBits(one[1])) << what << " on three threads in place";
    }
  });
}

TEST(AttentionStepBackward, MatchesTheScalarTwin) {
  ForEachScene([&](const StepScene& s, const std::string& name) {
    // o and lse of attention over all ranks' keys, were these the only ones that are seen and one more.
    TestTensors forward = Copies({&s.q, &s.k, &s.v, &s.document_start});
    for (TestTensor& t : Before(s)) forward.push_back(std::move(t));
    const TestTensors made = RunReference({Op::kAttentionStep, s.attributes, &forward});
    TestTensors inputs;
    inputs.push_back(RandomTensor(s.q.type(), 6));
    for (const TestTensor* t : {&s.q, &s.k, &s.v}) inputs.push_back(t->Copy());
    inputs.emplace_back(s.q.type());
    for (int64_t i = 0; i < s.q.type().shape.elements(); ++i) inputs.back().Set(i, made[0].Get(i));
    inputs.push_back(made[1].Copy());
    inputs.push_back(s.document_start.Copy());
    std::vector<std::pair<int, int>> in_place;
    if (s.attributes.Flag("acc")) {
      inputs.push_back(RandomTensor({DType::kF32, s.q.type().shape}, 7));
      in_place = {{0, 7}};
    }
    const TwinRun run{Op::kAttentionStepBackward, s.attributes, &inputs};
    const TestTensors want = RunReference(run);
    const BackwardBounds bounds = BoundsOf(s.shape, inputs, [&](int64_t t) { return s.Seen(t); });
    const std::vector<double>* bound[] = {&bounds.d_q, &bounds.d_k, &bounds.d_v};
    const double u32 = UnitRoundoff(DType::kF32);
    for (const AttentionWay& way : AttentionWaysOf(s.q.type().dtype)) {
      const std::string what = name + " on " + way.name;
      const TestTensors one = way.run(run, 1);
      for (size_t o = 0; o < 3; ++o) {
        ExpectNear(
            one[o], want[o], 2.02 * u32,
            [&](int64_t i) {
              const double before = o == 0 && inputs.size() > 7 ? std::fabs(inputs[7].Get(i)) : 0;
              return 1.02 * (*bound[o])[static_cast<size_t>(i)] + u32 * before + 1e-30;
            },
            what + " output " + std::to_string(o));
      }
      const TestTensors more = way.run({Op::kAttentionStepBackward, s.attributes, &inputs, in_place}, 3);
      for (size_t o = 0; o < 3; ++o) EXPECT_TRUE(more[o].SameBits(one[o])) << what << " on three threads in place";
    }
  });
}

// In f32, over all steps of a ring, bf16 operands give what one kernel gives of the whole rows, rounded once.
TEST(AttentionStep, ARingOfBf16IsAsGoodAsOneRank) {
  constexpr int64_t kRanks = 4, kRow = 256, kHeads = 2, kE = 32;
  const double scale = 1 / std::sqrt(static_cast<double>(kE));
  TestTensors whole;
  for (uint32_t i = 0; i < 3; ++i) whole.push_back(RandomTensor({DType::kBF16, {kRow, kHeads * kE}}, i, 2.0));
  whole.emplace_back(TensorType{DType::kI32, {kRow}});
  for (int64_t t = 0; t < kRow; ++t) whole[3].Set(t, 0);
  const Attributes heads = {{"heads", kHeads}, {"kv_heads", kHeads}, {"scale", scale}};
  // As if exact: the twin in double, on operands in f32.
  TestTensors exact;
  for (const TestTensor& t : whole) {
    exact.emplace_back(TensorType{t.type().dtype == DType::kI32 ? DType::kI32 : DType::kF32, t.type().shape});
    for (int64_t i = 0; i < t.type().shape.elements(); ++i) exact.back().Set(i, t.Get(i));
  }
  const TestTensors want = RunReference({Op::kAttention, heads, &exact});
  const auto part_of = [&](const TestTensor& t, int64_t rank) {
    const ContextPart part{kRow, kRanks, rank};
    const int64_t columns = t.type().shape.elements() / kRow;
    Shape shape = t.type().shape;
    shape.set_dim(0, part.local_row());
    TestTensor own({t.type().dtype, shape});
    for (int64_t i = 0; i < part.local_row() * columns; ++i) {
      own.Set(i, t.Get(part.PlaceOf(i / columns) * columns + i % columns));
    }
    return own;
  };
  const auto square_error = [&](const TestTensor& got, const TestTensor& right) {
    double sum = 0;
    for (int64_t i = 0; i < got.type().shape.elements(); ++i) {
      const double off = ToFloat(ToBF16(static_cast<float>(got.Get(i)))) - right.Get(i);
      sum += off * off;
    }
    return sum;
  };
  const Isa isa = RunnableIsas().back();
  if (isa == Isa::kScalar) GTEST_SKIP() << "no fast kernels here";
  double ring = 0;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    TestTensors state;
    for (int64_t s = 0; s < kRanks; ++s) {
      const int64_t origin = (rank - s + kRanks) % kRanks;
      Attributes a = heads;
      for (const auto& [key, value] : {std::pair("row", kRow), std::pair("ranks", kRanks), std::pair("index", rank),
                                       std::pair("origin", origin), std::pair("acc", int64_t{s > 0})}) {
        a.Set(key, value);
      }
      TestTensors inputs;
      inputs.push_back(part_of(whole[0], rank));
      inputs.push_back(part_of(whole[1], origin));
      inputs.push_back(part_of(whole[2], origin));
      inputs.push_back(part_of(whole[3], rank));
      for (TestTensor& t : state) inputs.push_back(std::move(t));
      state = RunFast({Op::kAttentionStep, a, &inputs}, isa, 1);
    }
    ring += square_error(state[0], part_of(want[0], rank));
  }
  const double one = square_error(RunFast({Op::kAttention, heads, &whole}, isa, 1)[0], want[0]);
  EXPECT_GT(one, 0);
  EXPECT_LE(ring, 1.1 * one);
}

TEST(AttentionStep, RefusesDocumentsThatBeginOutsideOfTheirRow) {
  TestTensors inputs;
  for (uint32_t i = 0; i < 3; ++i) inputs.push_back(RandomTensor({DType::kF32, {8, 16}}, i));
  inputs.emplace_back(TensorType{DType::kI32, {8}});
  KernelSpec spec{.op = Op::kAttentionStep,
                  .attributes = {{"heads", int64_t{1}},
                                 {"kv_heads", int64_t{1}},
                                 {"scale", 1.0},
                                 {"row", int64_t{8}},
                                 {"ranks", int64_t{2}},
                                 {"index", int64_t{0}},
                                 {"origin", int64_t{0}},
                                 {"acc", int64_t{0}}}};
  for (const TestTensor& t : inputs) spec.inputs.push_back(t.type());
  spec.outputs = *RuleOf(spec.op).infer(spec.inputs, spec.attributes);
  spec.workspace = RuleOf(spec.op).workspace(spec.inputs, spec.outputs, spec.attributes, 1);
  auto kernel = MakeCpuKernels({.threads = 1})->Make(spec);
  ASSERT_TRUE(kernel.ok());
  TestTensor o(spec.outputs[0]), lse(spec.outputs[1]), workspace({DType::kF32, {spec.workspace.v / 4}});
  std::vector<std::byte*> in, out = {o.data(), lse.data()};
  for (const TestTensor& t : inputs) in.push_back(t.data());
  const auto run = [&](std::vector<int> starts) {
    for (size_t i = 0; i < 8; ++i) inputs[3].Set(static_cast<int64_t>(i), starts[i]);
    return (*kernel)->Run({in.data(), out.data(), workspace.data()}).code();
  };
  // Places 0, 1, 6, 7 of two rows of 8.
  EXPECT_EQ(run({0, 0, 0, 5, 8, 8, 13, 13}), StatusCode::kOk);
  EXPECT_EQ(run({0, 0, 0, 0, 7, 8, 8, 8}), StatusCode::kCorrupt) << "in the row before";
  EXPECT_EQ(run({0, 0, 7, 7, 8, 8, 8, 8}), StatusCode::kCorrupt) << "behind the token";
  EXPECT_EQ(run({0, 1, 0, 0, 8, 8, 8, 8}), StatusCode::kCorrupt) << "before the one before";
  EXPECT_EQ(run({-1, 0, 0, 0, 8, 8, 8, 8}), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace temper::attention_step_test
