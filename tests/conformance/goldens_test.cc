// The reference kernels against PyTorch and transformers; torch_goldens.py computed the numbers, in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/reference/reference.h"
#include "backend/cpu/reference/slopes.h"
#include "graph/named_ops.h"
#include "graph/ops/attention_cache.h"
#include "model/alibi.h"
#include "op_case.h"
#include "torch_goldens.h"

namespace temper::goldens_test {
namespace {

using namespace goldens;

// torch_goldens.py's inputs.
Tensor Wave(double seed, const Shape& shape) {
  Tensor t({DType::kF64, shape});
  for (int64_t i = 0; i < shape.elements(); ++i) t.Set(i, 2 * std::sin(seed + 0.7 * static_cast<double>(i)));
  return t;
}

// Doubles of order 1 to 10 after tens of operations: 1e-13 is a thousand roundoffs.
void ExpectGolden(const Tensor& got, std::span<const double> want) {
  ASSERT_EQ(got.type().shape.elements(), static_cast<int64_t>(want.size()));
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(got[static_cast<int64_t>(i)], want[i], 1e-13 * (1 + std::fabs(want[i]))) << "element " << i;
  }
}

std::vector<Tensor> Twin(Op op, std::vector<Tensor> inputs, Attributes attributes) {
  return RunOn(ReferenceKernels(), {op, std::move(inputs), std::move(attributes)}, 1);
}

TEST(Goldens, NormsAreTorchs) {
  const Tensor x = Wave(1, {3, 4}), w = Wave(2, {4}), b = Wave(3, {4});
  ExpectGolden(Twin(Op::kRmsNorm, {x, w}, {{"eps", 1e-5}})[0], kRmsNorm);
  ExpectGolden(Twin(Op::kLayerNorm, {x, w, b}, {{"eps", 1e-5}})[0], kLayerNorm);
}

TEST(Goldens, ActivationsAreTorchs) {
  const Tensor x = Wave(1, {3, 4});
  ExpectGolden(Twin(Op::kRelu, {x}, {})[0], kRelu);
  ExpectGolden(Twin(Op::kSoftcap, {x}, {{"cap", 1.5}})[0], kSoftcap);
  ExpectGolden(Twin(Op::kReluSquared, {x}, {})[0], kReluSquared);
  ExpectGolden(Twin(Op::kClamp, {x}, {{"limit", 1.25}})[0], kClamp);
  const auto number = [](DType dtype, double n) { return Tensor::Of({dtype, {1}}, {n}); };
  const Tensor alpha_p = number(DType::kF64, 0.625), alpha_n = number(DType::kF64, -0.75);
  const Tensor beta = number(DType::kF32, 0.5), eps = number(DType::kF32, -1e-6);
  ExpectGolden(Twin(Op::kXielu, {x, alpha_p, alpha_n, beta, eps}, {})[0], kXielu);
  const auto of_xielu =
      Twin(Op::kXieluBackward, {Wave(4, {3, 4}), x, alpha_p, alpha_n, beta, eps}, {{"grad_w", int64_t{1}}});
  ExpectGolden(of_xielu[0], kXieluDX);
  ExpectGolden(of_xielu[1], kXieluDP);
  ExpectGolden(of_xielu[2], kXieluDN);
  ExpectGolden(Twin(Op::kGelu, {x}, {})[0], kGeluErf);
  ExpectGolden(Twin(Op::kGelu, {x}, {{"tanh", int64_t{1}}})[0], kGeluTanh);
  ExpectGolden(Twin(Op::kGlu, {x, Wave(4, {3, 4})}, {})[0], kSwiglu);
}

TEST(Goldens, SumsScalesAndCastsAreTorchs) {
  const Tensor x = Wave(1, {3, 4});
  ExpectGolden(Twin(Op::kAdd, {x, Wave(4, {3, 4})}, {})[0], kAdded);
  ExpectGolden(Twin(Op::kAdd, {x, Wave(2, {4})}, {})[0], kAddedVector);
  ExpectGolden(Twin(Op::kScale, {x}, {{"factor", 0.7}})[0], kScaled);
  ExpectGolden(Twin(Op::kScaleBy, {x, Tensor::Of({DType::kF64, {1}}, {0.7})}, {})[0], kScaled);
  ExpectGolden(Twin(Op::kSliceColumns, {x}, {{"begin", int64_t{1}}, {"count", int64_t{2}}})[0], kSlicedColumns);
  ExpectGolden(Twin(Op::kCast, {x}, {{"dtype", std::string("bf16")}})[0], kCastBf16);
}

TEST(Goldens, TablesAndProductsAreTorchs) {
  ExpectGolden(Twin(Op::kEmbedding, {Wave(11, {5, 4}), Tensor::Ints({4, 0, 4})}, {})[0], kEmbedding);
  const Tensor x = Wave(1, {3, 4}), w = Wave(26, {5, 4});
  ExpectGolden(Twin(Op::kLinear, {x, w, Wave(25, {3, 2}), Wave(27, {5, 2}), Wave(28, {5})},
                    {{"pair2", int64_t{1}}, {"bias", int64_t{1}}, {"scale", 0.7}})[0],
               kLinear);
  const auto both = Twin(Op::kLinears, {x, w, Wave(29, {6, 4})}, {{"scale", 0.7}});
  ExpectGolden(both[0], kLinearsFirst);
  ExpectGolden(both[1], kLinearsSecond);
  ExpectGolden(Twin(Op::kUnstack, {Wave(30, {6, 4})}, {{"matrices", int64_t{2}}})[0], kUnstackedRows);
  ExpectGolden(Twin(Op::kUnstack, {Wave(30, {3, 8})}, {{"matrices", int64_t{2}}, {"interleaved", int64_t{1}}})[0],
               kUnstackedColumns);
}

TEST(Goldens, MagnitudesOverNormsAreTorchs) {
  const Tensor a = Wave(41, {2, 4}), w = Wave(42, {3, 4}), b = Wave(43, {3, 2}), squares = Wave(44, {3});
  const Tensor q = Twin(Op::kRowSquares, {a, w, b, squares}, {{"scale", 0.7}, {"acc", int64_t{1}}})[0];
  ExpectGolden(q, kRowSquares);
  const Tensor x = Wave(45, {4, 3}), m = Wave(46, {3}), norms = Tensor::Of({DType::kF64, {3}}, {0.5, 2, 3});
  ExpectGolden(Twin(Op::kScaleColumns, {x, m, norms}, {})[0], kScaledColumns);
  ExpectGolden(Twin(Op::kScaleColumns, {x, m, norms}, {{"minus_one", int64_t{1}}})[0], kScaledColumnsLessOne);
}

// 5 tokens of 4 elements; 2 of 4 experts for each, SwiGLUs of 3.
TEST(Goldens, ExpertsAndTheirRoutersAreTransformers) {
  const Tensor x = Wave(31, {5, 4});
  const Attributes products{{"active", int64_t{2}}};
  const auto block = [&](std::vector<Tensor> routed_by, const Attributes& router) {
    const auto routed = Twin(Op::kRoute, std::move(routed_by), router);
    const Tensor rows = Twin(Op::kGatherRows, {x, routed[1]}, {})[0];
    const auto product = [&](const Tensor& of, const Tensor& w) {
      return Twin(Op::kGroupedLinear, {of, w, routed[2]}, products)[0];
    };
    const Tensor hidden =
        Twin(Op::kGlu, {product(rows, Wave(33, {4, 3, 4})), product(rows, Wave(34, {4, 3, 4}))}, {})[0];
    return Twin(Op::kCombine, {product(hidden, Wave(35, {4, 4, 3})), routed[1], routed[0]},
                {{"weighted", int64_t{1}}})[0];
  };
  const Tensor logits = Twin(Op::kLinear, {x, Wave(32, {4, 4})}, {})[0];
  // gpt-oss: biases are rows that the experts of rows choose, and what a product is added to.
  const auto routed =
      Twin(Op::kRoute, {Twin(Op::kLinear, {x, Wave(32, {4, 4}), Wave(38, {4})}, {{"bias", int64_t{1}}})[0]},
           {{"active", int64_t{2}}, {"normalise", int64_t{1}}});
  const auto with_bias = [&](const Tensor& rows, const Tensor& w, const Tensor& bias) {
    return Twin(Op::kGroupedLinear, {rows, w, routed[2], Twin(Op::kEmbedding, {bias, routed[2]}, {})[0]},
                {{"active", int64_t{2}}, {"acc", int64_t{1}}})[0];
  };
  const Tensor pairs = with_bias(Twin(Op::kGatherRows, {x, routed[1]}, {})[0], Wave(33, {4, 6, 4}), Wave(39, {4, 6}));
  const Tensor hidden = Twin(Op::kGlu, {pairs}, {{"clamped", int64_t{1}}, {"alpha", 1.702}, {"limit", 1.5}})[0];
  ExpectGolden(Twin(Op::kCombine, {with_bias(hidden, Wave(35, {4, 4, 3}), Wave(40, {4, 4})), routed[1], routed[0]},
                    {{"weighted", int64_t{1}}})[0],
               kGptOssMoe);
  ExpectGolden(block({logits}, {{"active", int64_t{2}}, {"normalise", int64_t{1}}}), kQwen3Moe);
  ExpectGolden(block({logits, Tensor::Of({DType::kF64, {4}}, {0, 0.05, -0.1, 0.2})}, {{"active", int64_t{2}},
                                                                                      {"normalise", int64_t{1}},
                                                                                      {"sigmoid", int64_t{1}},
                                                                                      {"bias", int64_t{1}},
                                                                                      {"groups", int64_t{2}},
                                                                                      {"top_groups", int64_t{1}},
                                                                                      {"scale", 2.5}}),
               kDeepseekV3Moe);
}

// Two blocks of 4 experts, 2 for each of 5 tokens, one of which is padding.
TEST(Goldens, TheLossThatBalancesExpertsIsTransformers) {
  const Tensor logits[] = {Wave(36, {5, 4}), Wave(37, {5, 4})};
  const Tensor present = Tensor::Of({DType::kF32, {5}}, {1, 1, 1, 0, 1});
  std::vector<Tensor> load, sum;  // so far
  for (int64_t block = 0; block < 2; ++block) {
    const auto routed = Twin(Op::kRoute, {logits[block]}, {{"active", int64_t{2}}});
    std::vector<Tensor> counted = {routed[2], routed[1], present}, added = {logits[block], present};
    for (const Tensor& t : load) counted.push_back(t);
    for (const Tensor& t : sum) added.push_back(t);
    load = Twin(Op::kExpertLoad, std::move(counted),
                {{"blocks", int64_t{2}}, {"experts", int64_t{4}}, {"block", block}, {"acc", block}});
    sum = Twin(Op::kRouterSum, std::move(added), {{"acc", block}});
  }
  const Attributes active{{"active", int64_t{2}}};
  ExpectGolden(Twin(Op::kBalance, {load[0], sum[0]}, active)[0], kBalance);
  const Tensor d_sum = Twin(Op::kBalanceBackward, {Tensor::Of({DType::kF64, {1}}, {1}), load[0]},
                            {{"active", int64_t{2}}, {"count", int64_t{4}}})[0];
  ExpectGolden(Twin(Op::kRouterSumBackward, {d_sum, logits[0], present}, {})[0], kBalanceFirstD);
  ExpectGolden(Twin(Op::kRouterSumBackward, {d_sum, logits[1], present}, {})[0], kBalanceSecondD);
}

// Documents of 4 and 2 tokens; 3 channels, 3 taps.
TEST(Goldens, AShortConvolutionIsTorchs) {
  const Tensor x = Wave(14, {6, 3}), w = Wave(15, {3, 1, 3}), start = Tensor::Ints({0, 0, 0, 0, 4, 4});
  ExpectGolden(Twin(Op::kShortConv, {x, w, start}, {})[0], kShortConv);
  ExpectGolden(Twin(Op::kShortConv, {x, w, start}, {{"silu", int64_t{1}}})[0], kShortConvSilu);
  const auto backward =
      Twin(Op::kShortConvBackward, {Wave(16, {6, 3}), x, w, start}, {{"silu", int64_t{1}}, {"grad_w", int64_t{1}}});
  ExpectGolden(backward[0], kShortConvDX);
  ExpectGolden(backward[1], kShortConvDW);
}

// One document of 6 tokens; 2 key heads of 3 elements, 4 value heads of 2.
TEST(Goldens, TheGatedDeltaRuleAndItsDecayAreTransformers) {
  const Tensor q = Wave(17, {6, 6}), k = Wave(18, {6, 6}), v = Wave(19, {6, 8}), b = Wave(20, {6, 4});
  const Tensor a = Wave(21, {6, 4}), a_log = Wave(22, {4}), dt_bias = Wave(23, {4});
  const Tensor g = Twin(Op::kDecay, {a, a_log, dt_bias}, {})[0], start = Tensor::Ints({0, 0, 0, 0, 0, 0});
  ExpectGolden(g, kDecay);
  const Attributes heads{{"heads", int64_t{4}}, {"key_heads", int64_t{2}}};
  ExpectGolden(Twin(Op::kGatedDelta, {q, k, v, g, b, start}, heads)[0], kGatedDelta);
  const auto backward = Twin(Op::kGatedDeltaBackward, {Wave(24, {6, 8}), q, k, v, g, b, start}, heads);
  ExpectGolden(backward[0], kGatedDeltaDQ);
  ExpectGolden(backward[1], kGatedDeltaDK);
  ExpectGolden(backward[2], kGatedDeltaDV);
  ExpectGolden(backward[4], kGatedDeltaDB);
  const auto of_decay = Twin(Op::kDecayBackward, {backward[3], a, a_log, dt_bias}, {{"grad_w", int64_t{1}}});
  ExpectGolden(of_decay[0], kGatedDeltaDA);
  ExpectGolden(of_decay[1], kGatedDeltaDALog);
  ExpectGolden(of_decay[2], kGatedDeltaDDtBias);
}

// One document of 6 tokens; 4 heads of 2 elements in 2 groups of 3.
TEST(Goldens, TheStateSpaceDualityAndItsStepsAreTransformers) {
  const Tensor x = Wave(61, {6, 8}), b = Wave(62, {6, 6}), c = Wave(63, {6, 6}), a = Wave(64, {6, 4});
  const Tensor a_log = Wave(65, {4}), dt_bias = Wave(66, {4}), d = Wave(67, {4});
  const Attributes steps{{"steps", int64_t{1}}}, heads{{"heads", int64_t{4}}, {"groups", int64_t{2}}};
  const auto gates = Twin(Op::kDecay, {a, a_log, dt_bias}, steps);
  const Tensor start = Tensor::Ints({0, 0, 0, 0, 0, 0});
  ExpectGolden(Twin(Op::kSsd, {x, b, c, gates[0], gates[1], d, start}, heads)[0], kSsd);
  const auto backward = Twin(Op::kSsdBackward, {Wave(68, {6, 8}), x, b, c, gates[0], gates[1], d, start}, heads);
  ExpectGolden(backward[0], kSsdDX);
  ExpectGolden(backward[1], kSsdDB);
  ExpectGolden(backward[2], kSsdDC);
  const auto of_decay = Twin(Op::kDecayBackward, {backward[3], backward[4], a, a_log, dt_bias},
                             {{"grad_w", int64_t{1}}, {"steps", int64_t{1}}});
  ExpectGolden(of_decay[0], kSsdDA);
  ExpectGolden(of_decay[1], kSsdDALog);
  ExpectGolden(of_decay[2], kSsdDDtBias);
  ExpectGolden(Twin(Op::kSumRows, {backward[5]}, {})[0], kSsdDD);
}

TEST(Goldens, RopeIsTransformers) {
  const Tensor table = Twin(Op::kRopeTable, {Tensor::Ints({0, 5, 9})},
                            {{"inv_freq", std::vector<double>{1.0, 0.01}}, {"f64", int64_t{1}}})[0];
  ExpectGolden(Twin(Op::kRope, {Wave(5, {3, 8}), table}, {{"head_dim", int64_t{4}}})[0], kRope);
  ExpectGolden(Twin(Op::kAppendToHeads, {Wave(47, {3, 8}), Wave(48, {3, 2})}, {{"heads", int64_t{4}}})[0],
               kHeadsAndTail);
  ExpectGolden(Twin(Op::kGateHeads, {Wave(47, {3, 8}), Wave(48, {3, 2})}, {})[0], kGatedHeads);
}

TEST(Goldens, AttentionAndItsGradientsAreTorchs) {
  const Tensor q = Wave(6, {5, 12}), k = Wave(7, {5, 6}), v = Wave(8, {5, 6}), start = Tensor::Ints({0, 0, 0, 3, 3});
  const auto check = [&](int64_t window, std::span<const double> o, std::span<const double> d_q,
                         std::span<const double> d_k, std::span<const double> d_v) {
    const Attributes attributes{{"heads", int64_t{4}}, {"kv_heads", int64_t{2}}, {"scale", 0.6}, {"window", window}};
    const auto forward = Twin(Op::kAttention, {q, k, v, start}, attributes);
    ExpectGolden(forward[0], o);
    const auto backward =
        Twin(Op::kAttentionBackward, {Wave(9, {5, 12}), q, k, v, forward[0], forward[1], start}, attributes);
    ExpectGolden(backward[0], d_q);
    ExpectGolden(backward[1], d_k);
    ExpectGolden(backward[2], d_v);
  };
  check(0, kAttention, kAttentionDQ, kAttentionDK, kAttentionDV);
  check(2, kAttentionWindow2, kAttentionWindow2DQ, kAttentionWindow2DK, kAttentionWindow2DV);
}

// Every kernel of this machine, in f32 and bf16. The errors of f32: sums of 192 products of at most 4, a softmax over
// 25 scores of at most 8, sums over 25 queries of gradients of up to 100. Those of bf16: probabilities, their gradients
// and results rounded to 8 bits. Both relative to the largest element.
TEST(Goldens, AttentionWithASinkAndKeysWiderThanValuesIsTransformers) {
  const auto operand = [](DType dtype, double seed, int64_t columns) {
    const Tensor wave = Wave(seed, {40, columns});
    Tensor rounded({DType::kBF16, {40, columns}}), t({dtype, {40, columns}});
    for (int64_t i = 0; i < 40 * columns; ++i) {
      rounded.Set(i, wave[i]);
      t.Set(i, rounded[i]);
    }
    return t;
  };
  const auto expect = [](const Tensor& got, std::span<const double> want, double relative, int64_t stride,
                         const char* what) {
    double largest = 0;
    for (const double x : want) largest = std::max(largest, std::fabs(x));
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(got[static_cast<int64_t>(i) * stride], want[i], relative * largest) << what << " " << i;
    }
  };
  const Attributes attributes{
      {"heads", int64_t{4}}, {"kv_heads", int64_t{2}}, {"scale", 0.01}, {"row", int64_t{40}}, {"sink", int64_t{1}}};
  std::vector<int32_t> starts(40, 0);
  std::fill(starts.begin() + 25, starts.end(), 25);
  const Tensor start = Tensor::Ints(starts);
  for (const DType dtype : kCompute) {
    const Tensor q = operand(dtype, 12, 4 * 192), k = operand(dtype, 13, 2 * 192), v = operand(dtype, 14, 2 * 128),
                 d_o = operand(dtype, 15, 4 * 128), sink = Tensor::Of({dtype, {4}}, {-1, 0.5, 2, 0});
    const double relative = dtype == DType::kF32 ? 2e-5 : 2e-2;
    for (const Isa isa : RunnableIsas()) {
      const auto kernels = MakeCpuKernels({.isa = isa});
      const OpCase forward{Op::kAttention, {q, k, v, start, sink}, attributes};
      const auto made = RunOn(*kernels, forward, 1);
      expect(made[0], kAttentionSink, relative, 97, "o");
      const OpCase backward{Op::kAttentionBackward, {d_o, q, k, v, made[0], made[1], start, sink}, attributes};
      const auto d = RunOn(*kernels, backward, 1);
      expect(d[0], kAttentionSinkDQ, relative, 97, "d_q");
      expect(d[1], kAttentionSinkDK, relative, 97, "d_k");
      expect(d[2], kAttentionSinkDV, relative, 97, "d_v");
      expect(d[3], kAttentionSinkDSink, relative, 1, "d_sink");
    }
  }
}

TEST(Goldens, CrossEntropyAndItsGradientsAreTorchs) {
  const auto out = Twin(Op::kLinearCrossEntropy, {Wave(10, {3, 4}), Wave(11, {5, 4}), Tensor::Ints({4, -1, 1})},
                        {{"grad_x", int64_t{1}}, {"grad_w", int64_t{1}}});
  ExpectGolden(out[0], kCrossEntropy);
  ExpectGolden(out[1], kCrossEntropyDX);
  ExpectGolden(out[2], kCrossEntropyDW);
}

TEST(Goldens, DivergencesFromATeacherAndTheirGradientsAreTrls) {
  const Tensor u = Wave(71, {5, 6});
  const std::vector<Tensor> inputs = {Wave(10, {3, 4}), Wave(11, {5, 4}), Tensor::Ints({4, -1, 1}), Wave(70, {3, 6}),
                                      u};
  const Attributes gradients = {{"grad_x", int64_t{1}}, {"grad_w", int64_t{1}}};
  struct Case {
    double beta, temperature;
    std::span<const double> loss, d_x, d_w;
  };
  for (const Case& c : {Case{0, 1, kDivergenceForward, kDivergenceForwardDX, kDivergenceForwardDW},
                        {1, 1, kDivergenceReverse, kDivergenceReverseDX, kDivergenceReverseDW},
                        {0.3, 2, kDivergenceJsd, kDivergenceJsdDX, kDivergenceJsdDW}}) {
    Attributes a = gradients;
    a.Set("beta", c.beta);
    a.Set("temperature", c.temperature);
    const auto out = Twin(Op::kLinearDistillation, inputs, a);
    ExpectGolden(out[0], c.loss);
    ExpectGolden(out[1], c.d_x);
    ExpectGolden(out[2], c.d_w);
  }
  const auto out = Twin(Op::kLinearDistillation,
                        {inputs[0], inputs[1], inputs[2], Wave(72, {5}), inputs[3], inputs[4], Wave(73, {5}),
                         Tensor::Of({DType::kF64, {3}}, {0.5, 3, 2.25})},
                        {{"grad_x", int64_t{1}},
                         {"grad_w", int64_t{1}},
                         {"bias", int64_t{1}},
                         {"grad_bias", int64_t{1}},
                         {"softcap", 1.5},
                         {"weighted", int64_t{1}},
                         {"beta", 0.5},
                         {"temperature", 0.7},
                         {"teacher_bias", int64_t{1}},
                         {"teacher_softcap", 2.5}});
  ExpectGolden(out[0], kDivergenceCapped);
  ExpectGolden(out[1], kDivergenceCappedDX);
  ExpectGolden(out[2], kDivergenceCappedDW);
  ExpectGolden(out[3], kDivergenceCappedDBias);
}

TEST(Goldens, WeightedCrossEntropyAndItsGradientsAreTorchs) {
  const auto out = Twin(
      Op::kLinearCrossEntropy,
      {Wave(10, {3, 4}), Wave(11, {5, 4}), Tensor::Ints({4, -1, 1}), Tensor::Of({DType::kF64, {3}}, {0.5, 3, 2.25})},
      {{"weighted", int64_t{1}}, {"grad_x", int64_t{1}}, {"grad_w", int64_t{1}}});
  ExpectGolden(out[0], kWeightedCrossEntropy);
  ExpectGolden(out[1], kWeightedCrossEntropyDX);
  ExpectGolden(out[2], kWeightedCrossEntropyDW);
}

TEST(Goldens, SmoothLabelsAreThoseOfTransformersLabelSmoother) {
  const auto out = Twin(Op::kLinearCrossEntropy, {Wave(10, {3, 4}), Wave(11, {5, 4}), Tensor::Ints({4, -1, 1})},
                        {{"smoothing", 0.1}, {"grad_x", int64_t{1}}, {"grad_w", int64_t{1}}});
  ExpectGolden(out[0], kSmoothCrossEntropy);
  ExpectGolden(out[1], kSmoothCrossEntropyDX);
  ExpectGolden(out[2], kSmoothCrossEntropyDW);
}

TEST(Goldens, TargetsThatAreTheLargestLogitAreThoseOfTorchsArgmax) {
  const Tensor w = Wave(11, {5, 4});
  Tensor twice({DType::kF64, {10, 4}});
  for (int64_t i = 0; i < 40; ++i) twice.Set(i, w[i % 20]);
  const std::vector<Tensor> inputs = {Wave(10, {8, 4}), twice, Tensor::Ints({2, 8, 4, -1, 9, 0, 6, 2})};
  ExpectGolden(Twin(Op::kLinearCrossEntropy, inputs, {{"correct", int64_t{1}}})[1], kRanked);
}

TEST(Goldens, LogProbabilitiesOfTokensAreTorchs) {
  const auto out = Twin(Op::kTokenLogprob, {Wave(10, {3, 4}), Wave(11, {5, 4}), Tensor::Ints({4, -1, 1})}, {});
  ExpectGolden(out[0], kTokenLogprob);
}

// A pair: two tokens of the chosen answer, one of the rejected.
TEST(Goldens, PreferencesAndTheirWeightsAreTrls) {
  const auto expect = [](const char* kind, std::span<const double> loss_and_weights, Attributes more = {},
                         double reference = 1) {
    more.Set("kind", std::string(kind));
    more.Set("beta", 0.5);
    const double r = reference;
    const auto out = Twin(Op::kPreference,
                          {Tensor::Of({DType::kF64, {5}}, {-1, -2.5, 9, -3, 9}), Tensor::Ints({5, 6, -1, 7, -1}),
                           Tensor::Of({DType::kF32, {5}}, {-4 * r, -4 * r, -4 * r, -2 * r, -2 * r}),
                           Tensor::Ints({0, 0, 0, 3, 3}), Tensor::Ints({0, 0, 0, 0, 0})},
                          std::move(more));
    const Tensor& weight = out[0];
    ExpectGolden(Tensor::Of({DType::kF64, {4}}, {out[1][0], weight[0], weight[1], weight[3]}), loss_and_weights);
  };
  expect("sigmoid", kPreferenceSigmoid);
  expect("hinge", kPreferenceHinge);
  expect("ipo", kPreferenceIpo);
  expect("simpo", kPreferenceSimpo, {{"gamma", 0.3}, {"smoothing", 0.1}}, /*reference=*/0);
  expect("orpo", kPreferenceOrpo, {}, /*reference=*/0);
}

// A good answer of two predicted tokens, a bad one of one.
TEST(Goldens, RatedAnswersAndTheirWeightsAreTrls) {
  const auto out = Twin(Op::kUnpairedPreference,
                        {Tensor::Of({DType::kF64, {5}}, {-1, -2.5, 9, -3, 9}), Tensor::Ints({5, 6, -1, 7, -1}),
                         Tensor::Of({DType::kF32, {5}}, {-4, -4, -4, -2, -2}), Tensor::Ints({0, 0, 0, 3, 3}),
                         Tensor::Of({DType::kF32, {5}}, {2, 2, 2, -2, -2}),
                         Tensor::Of({DType::kF32, {5}}, {0.25, 0.25, 0.25, 0.25, 0.25})},
                        {{"beta", 0.5}, {"good_weight", 1.5}, {"bad_weight", 0.5}});
  ExpectGolden(Tensor::Of({DType::kF64, {5}}, {out[1][0], out[1][3], out[0][0], out[0][1], out[0][3]}),
               kUnpairedPreference);
}

// A pair: the last tokens of answers of three tokens and of two.
TEST(Goldens, LossesOfRewardsAndTheirGradientsAreTrls) {
  const auto out = Twin(Op::kRewardLoss,
                        {Tensor::Of({DType::kF64, {5, 1}}, {9, 9, 0.75, 9, -0.5}), Tensor::Ints({0, 0, 0, 3, 3}),
                         Tensor::Ints({0, 0, 0, 0, 0}), Tensor::Of({DType::kF32, {5}}, {0.25, 0.25, 0.25, 0.25, 0.25})},
                        {{"center", 0.3}, {"grad", int64_t{1}}});
  ExpectGolden(Tensor::Of({DType::kF64, {3}}, {out[0][0], out[5][2], out[5][4]}), kRewardLoss);
}

TEST(Goldens, ClassesAreThoseOfTorchsGreatestLogits) {
  Tensor logits({DType::kF32, {5, 3}});
  for (int64_t i = 0; i < 15; ++i) logits.Set(i, Wave(36, {5, 3})[i]);
  const auto out = Twin(Op::kClassReport, {logits, Tensor::Ints({0, 1, 2, 0, -1})}, {});
  for (int64_t t = 0; t < 5; ++t) EXPECT_EQ(out[0][t], t < 4 ? kClassReport[t] : -1) << t;
}

TEST(Goldens, ClippingIsTorchsClipGradNorm) {
  const Tensor gradient = Tensor::Of({DType::kF64, {4}}, {3, -4, 12, 84});  // of the sum over 10 tokens
  const Tensor sum = Twin(Op::kSumSquares, {gradient}, {})[0];
  const Tensor scalars = Tensor::Of({DType::kF64, {kNumScalars}}, {1e-3, 0.1, 0.001, 10});
  const Tensor clip = Twin(Op::kClip, {sum, scalars}, {{"max_norm", 1.0}})[0];
  // The factor and the norm are stored in f32.
  EXPECT_NEAR(clip[1], kClipNorm[0], kU * kClipNorm[0]);
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(clip[0] * gradient[i], kClippedGradient[i], kU * std::fabs(kClippedGradient[i]));
  }
}

TEST(Goldens, CachedAttentionContinuesAttention) {
  constexpr int64_t kTokens = 7;
  const Tensor q = Wave(1, {kTokens, 12}), k = Wave(2, {kTokens, 6}), v = Wave(3, {kTokens, 6});
  for (int64_t window : {0, 3}) {
    const Attributes attributes{{"heads", int64_t{4}}, {"kv_heads", int64_t{2}}, {"scale", 0.5}, {"window", window}};
    const Tensor whole = Twin(Op::kAttention, {q, k, v, Tensor::Ints({0, 0, 0, 0, 0, 0, 0})}, attributes)[0];
    // A prompt of four tokens, then one at a time, in the second of two slots.
    Attributes cached = attributes;
    cached.Set("page", kCachePage);
    Tensor k_cache(KeyCacheType(DType::kF64, kCachePage, 2, 3)), v_cache(ValueCacheType(DType::kF64, kCachePage, 2, 3));
    const Tensor pages = Tensor::Of({DType::kI32, {2, 1}}, {-1, 0});
    for (int64_t begin = 0, count = 4; begin < kTokens; begin += count, count = 1) {
      const auto rows = [&](const Tensor& x) {
        return Twin(Op::kSliceRows, {x}, {{"begin", begin}, {"count", count}})[0];
      };
      std::vector<int32_t> places(static_cast<size_t>(count));
      std::iota(places.begin(), places.end(), static_cast<int32_t>(begin));
      const Tensor slots = Tensor::Ints(std::vector<int32_t>(static_cast<size_t>(count), 1));
      auto out = Twin(Op::kAttentionCached,
                      {rows(q), rows(k), rows(v), k_cache, v_cache, slots, Tensor::Ints(places), pages}, cached);
      for (int64_t i = 0; i < count * 12; ++i) EXPECT_NEAR(out[0][i], whole[begin * 12 + i], 1e-14) << begin;
      k_cache = std::move(out[1]);
      v_cache = std::move(out[2]);
    }
  }
}

// 6 heads, which are no power of two. transformers has slopes in f32.
TEST(Goldens, AttentionWithAlibiIsTransformers) {
  const double scale = 1 / std::sqrt(3.0);
  std::vector<double> slopes(std::begin(kAlibiSlopes), std::end(kAlibiSlopes));
  for (double& slope : slopes) slope /= scale;
  const Attributes attributes{{"heads", int64_t{6}}, {"kv_heads", int64_t{6}}, {"scale", scale}, {"slopes", slopes}};
  const Tensor q = Wave(71, {5, 18}), k = Wave(72, {5, 18}), v = Wave(73, {5, 18}),
               start = Tensor::Ints({0, 0, 0, 0, 0});
  const auto forward = Twin(Op::kAttention, {q, k, v, start}, attributes);
  ExpectGolden(forward[0], kAttentionAlibi);
  const auto backward =
      Twin(Op::kAttentionBackward, {Wave(74, {5, 18}), q, k, v, forward[0], forward[1], start}, attributes);
  ExpectGolden(backward[0], kAttentionAlibiDQ);
  ExpectGolden(backward[1], kAttentionAlibiDK);
  ExpectGolden(backward[2], kAttentionAlibiDV);
}

// What scores of 16 heads grow by, of the last of 300 tokens.
TEST(Goldens, FalconsRoundedSlopesAreTransformers) {
  const std::vector<double> exact = AlibiSlopes(16);
  std::vector<double> slopes;
  for (const double slope : exact) slopes.push_back(ToFloat(FromFloat<bf16>(static_cast<float>(slope))));
  const reference::Slopes of({{"slopes", slopes}, {"rounded_slopes", int64_t{1}}});
  size_t at = 0;
  for (int64_t h = 0; h < 16; ++h) {
    for (int64_t key = 0; key < 300; key += 23, ++at) EXPECT_EQ(of.At(h, key, 299, 0), kFalconAlibi[at]) << h << key;
  }
  EXPECT_EQ(at, std::size(kFalconAlibi));
}

// f32 in transformers: two of its roundoffs.
TEST(Goldens, SinusoidsAreTransformers) {
  const std::vector<double> frequencies = {1, std::exp(-std::log(1e4) / 3), std::exp(-std::log(1e4) * 2 / 3), 1e-4};
  const Tensor table =
      Twin(Op::kRopeTable, {Tensor::Ints({0, 3, 7})},
           {{"inv_freq", frequencies}, {"f64", int64_t{1}}, {"sines_first", int64_t{1}}, {"shift", int64_t{2}}})[0];
  ASSERT_EQ(table.type().shape.elements(), static_cast<int64_t>(std::size(kSinusoids)));
  for (size_t i = 0; i < std::size(kSinusoids); ++i) {
    EXPECT_NEAR(table[static_cast<int64_t>(i)], kSinusoids[i], 1e-6) << i;
  }
}

}  // namespace
}  // namespace temper::goldens_test
