// sum_squares, clip, adamw, sgd and lion: the update.
#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/reference/reference.h"
#include "graph/named_ops.h"
#include "graph/update_rule.h"
#include "op_case.h"
#include "torch_goldens.h"

namespace temper::update_test {
namespace {

constexpr int64_t kCounts[] = {1, 15, 64, 4095, 4096, 4097, 100003};

Tensor Scalars(double learning_rate, int step, double tokens) {
  return Tensor::Of({DType::kF64, {kNumScalars}},
                    {learning_rate, 1 - std::pow(0.9, step), 1 - std::pow(0.999, step), tokens});
}

TEST(SumSquares, AgreesWithItsTwin) {
  for (DType dtype : kCompute) {
    for (int64_t n : kCounts) {
      const OpCase sum{Op::kSumSquares, {Tensor::Random({dtype, {n}}, 1, 1e18)}, {}};
      const double want = RunOn(ReferenceKernels(), sum, 1)[0][0];
      // Doubles, whose roundoff ExpectConforms counts twice: 4096 terms of a block (the twin's order) and the blocks.
      ExpectConforms(sum, [&](int, int64_t) { return 0x1p-53 * (4096 + static_cast<double>(n) / 4096) * want; });
    }
  }
}

TEST(SumScalars, AddsUpInOrderAndIsZeroWithoutTerms) {
  const auto sum = [](const std::vector<double>& terms) {
    OpCase op_case{Op::kSumScalars, {}, {}};
    for (const double x : terms) op_case.inputs.push_back(Tensor::Of({DType::kF64, {1}}, {x}));
    return RunOn(*MakeCpuKernels({}), op_case, 1)[0][0];
  };
  EXPECT_EQ(sum({}), 0);
  EXPECT_EQ(sum({0.1, 0.2, 0.3}), 0.1 + 0.2 + 0.3);
}

TEST(Clip, IsTorchsClipGradNormOfTheMeanGradient) {
  const auto clip = [](std::vector<double> sums, double tokens, double max_norm) {
    OpCase op_case{Op::kClip, {}, {{"max_norm", max_norm}}};
    for (double s : sums) op_case.inputs.push_back(Tensor::Of({DType::kF64, {1}}, {s}));
    op_case.inputs.push_back(Scalars(1e-3, 1, tokens));
    const auto out = RunOn(*MakeCpuKernels({}), op_case, 1);
    return std::pair(out[0][0], out[0][1]);
  };
  // Gradient of the sum over 10 tokens: (30, 40). The mean's: norm 5.
  EXPECT_EQ(clip({900, 1600}, 10, 0), std::pair(double{0.1f}, 5.0));
  EXPECT_EQ(clip({900, 1600}, 10, 6), std::pair(double{0.1f}, 5.0));
  EXPECT_EQ(clip({900, 1600}, 10, 1), std::pair(double{static_cast<float>(0.1 / (5 + 1e-6))}, 5.0));
  EXPECT_TRUE(std::isnan(clip({NAN}, 10, 1).second)) << "a NaN gradient must be detected";
}

TEST(Adamw, FollowsTorchsAdamW) {
  const double gradients[2][3] = {{0.1, -0.2, 3}, {-0.4, 0, 3}};
  const TensorType f32{DType::kF32, {3}};
  Tensor w = Tensor::Of(f32, {1, -2, 0.5}), m = Tensor::Of(f32, {0, 0, 0}), v = m;
  const Tensor clip = Tensor::Of({DType::kF32, {2}}, {0.5, 1});  // of gradients twice as large
  const Attributes attributes{{"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", 0.1}};
  for (int step = 1; step <= 2; ++step) {
    const auto& gradient = gradients[step - 1];
    const Tensor g = Tensor::Of(f32, {2 * gradient[0], 2 * gradient[1], 2 * gradient[2]});
    auto out = RunOn(*MakeCpuKernels({}), {Op::kAdamw, {w, g, m, v, clip, Scalars(1e-2, step, 1)}, attributes}, 1);
    w = std::move(out[0]);
    m = std::move(out[1]);
    v = std::move(out[2]);
    for (int i = 0; i < 3; ++i) {
      const double* const golden = step == 1 ? goldens::kAdamwStep1 : goldens::kAdamwStep2;  // w, m, v
      // Per step: the decay and the update round w (2u of it); m and v round each product and sum (and the f32 of
      // beta).
      EXPECT_NEAR(w[i], golden[i], 2 * step * kU * 2) << "step " << step << " element " << i;
      EXPECT_NEAR(m[i], golden[3 + i], 4 * step * kU * 0.6);
      // 1 - beta2 = 0.001 in f32 is off by u of itself, beta2 by u: 5u per step.
      EXPECT_NEAR(v[i], golden[6 + i], 5 * step * kU * std::fabs(golden[6 + i]));
    }
  }
}

TEST(Adamw, IsItsTwinToTheBitOnEveryInstructionSet) {
  for (int weight = 0; weight < 3; ++weight) {  // none, f32, bf16
    for (int64_t n : kCounts) {
      const TensorType f32{DType::kF32, {n}};
      Tensor v = Tensor::Random(f32, 4, 1e-3);
      for (int64_t i = 0; i < n; ++i) v.Set(i, i % 7 == 0 ? 0 : i % 11 == 0 ? 1e-42 : std::fabs(v[i]));
      OpCase adamw{
          Op::kAdamw,
          {Tensor::Random(f32, 1), Tensor::Random(f32, 2, 50), Tensor::Random(f32, 3, 0.1), v,
           Tensor::Of({DType::kF32, {2}}, {1.0 / 37, 5}), Scalars(3e-4, 11, 37)},
          {{"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", 0.01}, {"weight", int64_t{weight > 0}}}};
      if (weight > 0) adamw.attributes.Set("dtype", weight == 1 ? "f32" : "bf16");
      const auto want = RunOn(ReferenceKernels(), adamw, 1);
      for (Isa isa : RunnableIsas()) {
        for (int threads : {1, 2, 3}) {
          const auto got = RunOn(*MakeCpuKernels({.threads = 3, .isa = isa}), adamw, threads);
          for (size_t k = 0; k < want.size(); ++k) {
            EXPECT_TRUE(got[k].SameBytes(want[k])) << "output " << k << " n " << n << " on " << ToString(isa);
          }
        }
      }
    }
  }
}

// A weight's own learning rate is a factor of the step's.
TEST(Update, AGroupsRateIsThatOfAStepSoMuchFaster) {
  const TensorType f32{DType::kF32, {3}};
  const Tensor w = Tensor::Of(f32, {1, -2, 0.5}), g = Tensor::Of(f32, {0.1, -0.2, 3}), m = Tensor::Of(f32, {0, 0.1, 1}),
               v = Tensor::Of(f32, {0.01, 0, 1}), clip = Tensor::Of({DType::kF32, {2}}, {0.5, 1});
  for (const Op op : {Op::kAdamw, Op::kSgd, Op::kLion}) {
    const auto updated = [&](double rate, double factor) {
      Attributes attributes = UpdateSettings(op);
      attributes.Set("weight_decay", 0.1);
      if (factor != 1) attributes.Set("lr_factor", factor);
      std::vector<Tensor> in = {w, g, m};
      if (op == Op::kAdamw) in.push_back(v);
      in.push_back(clip);
      in.push_back(Scalars(rate, 3, 1));
      return RunOn(*MakeCpuKernels({}), {op, std::move(in), attributes}, 1);
    };
    const auto own = updated(1e-2, 0.25), faster = updated(0.25e-2, 1), other = updated(1e-2, 1);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(own[0][i], faster[0][i]) << ToString(op);
      EXPECT_NE(own[0][i], other[0][i]) << ToString(op);
    }
  }
}

TEST(Adamw, UpdatesAWeightOfThreeDimsLikeOneOfOneDim) {
  std::vector<Tensor> outputs[2];
  for (const bool flat : {false, true}) {
    const TensorType f32{DType::kF32, flat ? Shape{3 * 5 * 7} : Shape{3, 5, 7}};
    Tensor v = Tensor::Random(f32, 4, 1e-3);
    for (int64_t i = 0; i < f32.shape.elements(); ++i) v.Set(i, std::fabs(v[i]));
    const OpCase adamw{Op::kAdamw,
                       {Tensor::Random(f32, 1), Tensor::Random(f32, 2, 50), Tensor::Random(f32, 3, 0.1), v,
                        Tensor::Of({DType::kF32, {2}}, {1.0 / 37, 5}), Scalars(3e-4, 11, 37)},
                       {{"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", 0.01}}};
    outputs[flat] = RunOn(*MakeCpuKernels({}), adamw, 2);
  }
  for (size_t k = 0; k < outputs[0].size(); ++k) {
    for (int64_t i = 0; i < 3 * 5 * 7; ++i) ASSERT_EQ(outputs[0][k][i], outputs[1][k][i]) << "output " << k;
  }
}

TEST(Sgd, FollowsTorchsSgd) {
  struct {
    Attributes settings;
    const double* golden;  // per step: w, momentum
  } const cases[] = {{UpdateSettings(Op::kSgd), goldens::kSgd},
                     {UpdateSettings(Op::kSgd, {{"nesterov", 1}}), goldens::kSgdNesterov},
                     {UpdateSettings(Op::kSgd, {{"momentum", 0}}), goldens::kSgdPlain}};
  const double gradients[3][3] = {{0.1, -0.2, 3}, {-0.4, 0, 3}, {0.2, 0.5, -1}};
  const TensorType f32{DType::kF32, {3}};
  const Tensor clip = Tensor::Of({DType::kF32, {2}}, {0.5, 1});  // of gradients twice as large
  for (const auto& c : cases) {
    Attributes attributes = c.settings;
    attributes.Set("weight_decay", 0.1);
    Tensor w = Tensor::Of(f32, {1, -2, 0.5}), momentum = Tensor::Of(f32, {0, 0, 0});
    for (int step = 0; step < 3; ++step) {
      const auto& gradient = gradients[step];
      OpCase sgd{Op::kSgd, {w, Tensor::Of(f32, {2 * gradient[0], 2 * gradient[1], 2 * gradient[2]})}, attributes};
      if (attributes.Flag("buffer")) sgd.inputs.push_back(momentum);
      sgd.inputs.push_back(clip);
      sgd.inputs.push_back(Scalars(1e-2, step + 1, 1));
      auto out = RunOn(*MakeCpuKernels({}), sgd, 1);
      w = std::move(out[0]);
      if (attributes.Flag("buffer")) momentum = std::move(out[1]);
      const double* const golden = c.golden + 6 * step;
      for (int i = 0; i < 3; ++i) {
        // A step rounds w (up to 2), and its gradient with decay and momentum (up to 8): a few u of each, of which w
        // sees the learning rate's part.
        EXPECT_NEAR(w[i], golden[i], (step + 1) * (4 + 1e-2 * 32) * kU) << c.settings.ToString() << " step " << step;
        EXPECT_NEAR(momentum[i], golden[3 + i], (step + 1) * 32 * kU) << c.settings.ToString() << " step " << step;
      }
    }
  }
}

TEST(Sgd, IsItsTwinToTheBitOnEveryInstructionSet) {
  for (const Attributes& settings : {UpdateSettings(Op::kSgd), UpdateSettings(Op::kSgd, {{"nesterov", 1}}),
                                     UpdateSettings(Op::kSgd, {{"momentum", 0}})}) {
    for (int weight = 0; weight < 3; ++weight) {  // none, f32, bf16
      for (int64_t n : kCounts) {
        const TensorType f32{DType::kF32, {n}};
        OpCase sgd{Op::kSgd, {Tensor::Random(f32, 1), Tensor::Random(f32, 2, 50)}, settings};
        if (settings.Flag("buffer")) sgd.inputs.push_back(Tensor::Random(f32, 3, 0.1));
        sgd.inputs.push_back(Tensor::Of({DType::kF32, {2}}, {1.0 / 37, 5}));
        sgd.inputs.push_back(Scalars(3e-4, 11, 37));
        sgd.attributes.Set("weight_decay", 0.01);
        sgd.attributes.Set("weight", int64_t{weight > 0});
        if (weight > 0) sgd.attributes.Set("dtype", weight == 1 ? "f32" : "bf16");
        const auto want = RunOn(ReferenceKernels(), sgd, 1);
        for (Isa isa : RunnableIsas()) {
          for (int threads : {1, 2, 3}) {
            const auto got = RunOn(*MakeCpuKernels({.threads = 3, .isa = isa}), sgd, threads);
            for (size_t k = 0; k < want.size(); ++k) {
              EXPECT_TRUE(got[k].SameBytes(want[k]))
                  << "output " << k << " n " << n << " on " << ToString(isa) << sgd.attributes.ToString();
            }
          }
        }
      }
    }
  }
}

TEST(Lion, FollowsLionPytorchs) {
  const double gradients[3][3] = {{0.1, -0.2, 3}, {-0.4, 0, 3}, {0.2, 0.5, -1}};
  const TensorType f32{DType::kF32, {3}};
  const Tensor clip = Tensor::Of({DType::kF32, {2}}, {0.5, 1});  // of gradients twice as large
  Attributes attributes = UpdateSettings(Op::kLion);
  attributes.Set("weight_decay", 0.1);
  Tensor w = Tensor::Of(f32, {1, -2, 0.5}), mean = Tensor::Of(f32, {0, 0, 0});
  for (int step = 0; step < 3; ++step) {
    const auto& gradient = gradients[step];
    auto out = RunOn(*MakeCpuKernels({}),
                     {Op::kLion,
                      {w, Tensor::Of(f32, {2 * gradient[0], 2 * gradient[1], 2 * gradient[2]}), mean, clip,
                       Scalars(1e-2, step + 1, 1)},
                      attributes},
                     1);
    w = std::move(out[0]);
    mean = std::move(out[1]);
    const double* const golden = goldens::kLion + 6 * step;
    for (int i = 0; i < 3; ++i) {
      // A step rounds w (up to 2) twice, and the mean (up to 1) and its factors.
      EXPECT_NEAR(w[i], golden[i], (step + 1) * 6 * kU) << "step " << step;
      EXPECT_NEAR(mean[i], golden[3 + i], (step + 1) * 4 * kU) << "step " << step;
    }
  }
}

TEST(Lion, IsItsTwinToTheBitOnEveryInstructionSet) {
  for (int weight = 0; weight < 3; ++weight) {  // none, f32, bf16
    for (int64_t n : kCounts) {
      const TensorType f32{DType::kF32, {n}};
      OpCase lion{Op::kLion,
                  {Tensor::Random(f32, 1), Tensor::Random(f32, 2, 50), Tensor::Random(f32, 3, 0.1),
                   Tensor::Of({DType::kF32, {2}}, {1.0 / 37, 5}), Scalars(3e-4, 11, 37)},
                  UpdateSettings(Op::kLion)};
      // Directions that are zero, and a gradient that is no number.
      for (const int at : {1, 2}) lion.inputs[static_cast<size_t>(at)].Set(0, 0);
      if (n > 1) lion.inputs[1].Set(1, NAN);
      lion.attributes.Set("weight_decay", 0.01);
      lion.attributes.Set("weight", int64_t{weight > 0});
      if (weight > 0) lion.attributes.Set("dtype", weight == 1 ? "f32" : "bf16");
      const auto want = RunOn(ReferenceKernels(), lion, 1);
      for (Isa isa : RunnableIsas()) {
        for (int threads : {1, 2, 3}) {
          const auto got = RunOn(*MakeCpuKernels({.threads = 3, .isa = isa}), lion, threads);
          for (size_t k = 0; k < want.size(); ++k) {
            EXPECT_TRUE(got[k].SameBytes(want[k]) || (k == 1 && n > 1))
                << "output " << k << " n " << n << " on " << ToString(isa);
            for (int64_t i = 0; i < n; ++i) {
              if (std::isnan(want[k][i]))
                EXPECT_TRUE(std::isnan(got[k][i]));
              else
                ASSERT_EQ(got[k][i], want[k][i]) << "output " << k << " element " << i << " on " << ToString(isa);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace temper::update_test
