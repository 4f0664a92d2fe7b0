// sum_squares, clip and the optimizers: the update.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/reference/reference.h"
#include "graph/named_ops.h"
#include "graph/update_rule.h"
#include "op_case.h"
#include "tensor/dynamic_blocks.h"
#include "tensor/dynamic_map.h"
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
  const TensorType f32{DType::kF32, {1, 3}};
  const Tensor w = Tensor::Of(f32, {1, -2, 0.5}), g = Tensor::Of(f32, {0.1, -0.2, 3}), m = Tensor::Of(f32, {0, 0.1, 1}),
               v = Tensor::Of(f32, {0.01, 0, 1}), clip = Tensor::Of({DType::kF32, {2}}, {0.5, 1});
  for (const UpdateRule* rule : UpdateRules()) {
    const Op op = rule->op;
    const auto updated = [&](double rate, double factor) {
      Attributes attributes = rule->SettingsFor(UpdateSettings(op), f32.shape);
      attributes.Set("weight_decay", 0.1);
      if (factor != 1) attributes.Set("lr_factor", factor);
      std::vector<Tensor> in = {w, g};
      for (const UpdateState* state : rule->StatesOf(attributes)) {
        const TensorType type = state->TypeOf(f32.shape);
        in.push_back(type == f32 ? in.size() == 2 ? m : v : Tensor::Random(type, 1, 0));
      }
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

TEST(Adamw8bit, MapsAreBitsandbytes) {
  for (size_t i = 0; i < 256; ++i) {
    EXPECT_EQ(double{kSignedDynamicMap[i]}, goldens::kDynamicMap[i]);
    EXPECT_EQ(double{kUnsignedDynamicMap[i]}, goldens::kUnsignedDynamicMap[i]);
  }
}

// A block of 256 elements and one of 44.
TEST(Adamw8bit, FollowsBitsandbytesWithItsCodes) {
  constexpr int64_t kElements = 300;
  const TensorType f32{DType::kF32, {kElements}}, blocks = DynamicBlocksOf(f32.shape);
  const Tensor clip = Tensor::Of({DType::kF32, {2}}, {0.5, 1});  // of gradients twice as large
  Attributes attributes = UpdateSettings(Op::kAdamw8bit);
  attributes.Set("weight_decay", 0.1);
  Tensor w(f32), m(blocks), v(blocks);
  for (int64_t i = 0; i < blocks.shape.elements(); ++i) {
    m.Set(i, 0);
    v.Set(i, 0);
  }
  for (int64_t i = 0; i < kElements; ++i) w.Set(i, static_cast<double>(i * 37 % 101 - 50) / 64);
  const double* golden = goldens::kAdamw8bit;
  for (int step = 0; step < 3; ++step) {
    Tensor g(f32);
    for (int64_t i = 0; i < kElements; ++i) {
      const float part = static_cast<float>((i * 29 + step * 7) % 83 - 41) / 41;
      g.Set(i, std::ldexp(double{part}, 1 - static_cast<int>(i * 11 % 21)));
    }
    auto out =
        RunOn(*MakeCpuKernels({}), {Op::kAdamw8bit, {w, g, m, v, clip, Scalars(1e-2, step + 1, 1)}, attributes}, 1);
    w = std::move(out[0]);
    m = std::move(out[1]);
    v = std::move(out[2]);
    // As AdamW's: the decay and the update round w (up to 2) twice a step.
    for (int64_t i = 0; i < kElements; ++i) EXPECT_NEAR(w[i], *golden++, (step + 1) * 4 * kU) << "step " << step;
    for (const Tensor* const state : {&m, &v}) {
      const auto at = [&](int64_t i) { return i / kDynamicBlock * kDynamicBlockBytes + i % kDynamicBlock; };
      for (int64_t i = 0; i < kElements; ++i) EXPECT_EQ((*state)[at(i)], *golden++) << "step " << step << " of " << i;
      for (int64_t block = 0; block < 2; ++block, ++golden) {
        float absmax;
        std::memcpy(&absmax, state->data() + block * kDynamicBlockBytes + kDynamicBlock, sizeof absmax);
        EXPECT_NEAR(double{absmax}, *golden, 5 * (step + 1) * kU * *golden) << "step " << step;
      }
    }
  }
}

TEST(Adamw8bit, IsItsTwinToTheBitOnEveryInstructionSet) {
  for (int weight = 0; weight < 3; ++weight) {  // none, f32, bf16
    for (int64_t n : {1, 255, 256, 4095, 4097, 10007}) {
      const TensorType f32{DType::kF32, {n}};
      const auto blocks = [&](uint64_t seed, double absmax) {
        Tensor t = Tensor::Random(DynamicBlocksOf(f32.shape), seed, 256);
        for (int64_t at = kDynamicBlock; at < t.type().shape.elements(); at += kDynamicBlockBytes) {
          const auto of_block = static_cast<float>(absmax * static_cast<double>(at % 7));
          std::memcpy(t.data() + at, &of_block, sizeof of_block);
        }
        return t;
      };
      Tensor g = Tensor::Random(f32, 2, 50);
      for (int64_t i = 0; i < n; i += 3) g.Set(i, i % 2 == 0 ? 0 : 1e-7 * g[i]);
      OpCase adamw{Op::kAdamw8bit,
                   {Tensor::Random(f32, 1), g, blocks(3, 0.1), blocks(4, 1e-3),
                    Tensor::Of({DType::kF32, {2}}, {1.0 / 37, 5}), Scalars(3e-4, 11, 37)},
                   UpdateSettings(Op::kAdamw8bit)};
      adamw.attributes.Set("weight_decay", 0.01);
      adamw.attributes.Set("weight", int64_t{weight > 0});
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

// A matrix, two in one tensor with scaled steps, and a vector.
TEST(Adafactor, FollowsTransformers) {
  struct {
    Shape shape;
    bool scale;
    const double* golden;  // per step: w, then the states
  } const cases[] = {{{3, 5}, false, goldens::kAdafactorMatrix},
                     {{2, 3, 2}, true, goldens::kAdafactorStack},
                     {{7}, false, goldens::kAdafactorVector}};
  const Tensor clip = Tensor::Of({DType::kF32, {2}}, {0.5, 1});  // of gradients twice as large
  const UpdateRule& rule = *UpdateRuleOf(Op::kAdafactor);
  for (const auto& [shape, scale, golden] : cases) {
    SCOPED_TRACE(shape.ToString());
    const TensorType f32{DType::kF32, shape};
    const double scales = scale ? 1 : 0;
    Attributes attributes = rule.SettingsFor(UpdateSettings(Op::kAdafactor, {{"scale_parameter", scales}}), shape);
    attributes.Set("weight_decay", 0.1);
    Tensor w(f32), g(f32);
    for (int64_t i = 0; i < shape.elements(); ++i) w.Set(i, static_cast<double>(i * 7 % 13 - 6) / 8);
    std::vector<Tensor> states;
    for (const UpdateState* state : rule.StatesOf(attributes)) {
      states.emplace_back(state->TypeOf(shape));
      for (int64_t i = 0; i < states.back().type().shape.elements(); ++i) states.back().Set(i, 0);
    }
    const double* next = golden;
    for (int step = 1; step <= 2; ++step) {
      for (int64_t i = 0; i < shape.elements(); ++i) {
        g.Set(i, static_cast<double>((i + step - 1) * 5 % 11 - 5) / 8);
      }
      Tensor scalars = Scalars(1e-2, step, 1);
      std::vector<double> own(kNumScalars);
      rule.fill_scalars(attributes, step, own);
      scalars.Set(kScalarBiasCorrection2, own[kScalarBiasCorrection2]);
      std::vector<Tensor> in = {w, g};
      for (const Tensor& state : states) in.push_back(state);
      in.push_back(clip);
      in.push_back(scalars);
      auto out = RunOn(*MakeCpuKernels({}), {Op::kAdafactor, std::move(in), attributes}, 1);
      w = std::move(out[0]);
      // w rounds twice a step, and the learning rate's part of u: some ten roundings of numbers up to 4.
      for (int64_t i = 0; i < shape.elements(); ++i) {
        EXPECT_NEAR(w[i], *next++, step * (2 + 1e-2 * 40) * kU) << "step " << step;
      }
      // A mean of squares rounds each term and its sum; beta2 and the rest of it.
      for (size_t k = 0; k < states.size(); ++k) {
        states[k] = std::move(out[k + 1]);
        for (int64_t i = 0; i < states[k].type().shape.elements(); ++i, ++next) {
          EXPECT_NEAR(states[k][i], *next, step * 10 * kU * *next) << "step " << step << " state " << k;
        }
      }
    }
  }
}

TEST(Adafactor, AgreesWithItsTwin) {
  const UpdateRule& rule = *UpdateRuleOf(Op::kAdafactor);
  for (int weight = 0; weight < 3; ++weight) {  // none, f32, bf16
    for (const Shape& shape :
         {Shape{1, 7}, Shape{33, 17}, Shape{130, 40}, Shape{3, 20, 50}, Shape{5000}, Shape{2, 5000}}) {
      const TensorType f32{DType::kF32, shape};
      Attributes attributes =
          rule.SettingsFor(UpdateSettings(Op::kAdafactor, {{"scale_parameter", weight == 1}}), shape);
      attributes.Set("weight_decay", 0.1);
      attributes.Set("weight", int64_t{weight > 0});
      if (weight > 0) attributes.Set("dtype", weight == 1 ? "f32" : "bf16");
      OpCase update{Op::kAdafactor, {Tensor::Random(f32, 1), Tensor::Random(f32, 2, 50)}, attributes};
      for (const UpdateState* state : rule.StatesOf(attributes)) {
        Tensor& t = update.inputs.emplace_back(Tensor::Random(state->TypeOf(shape), 3, 0.1));
        for (int64_t i = 0; i < t.type().shape.elements(); ++i) t.Set(i, std::fabs(t[i]));
      }
      update.inputs.push_back(Tensor::Of({DType::kF32, {2}}, {1.0 / 37, 5}));
      Tensor scalars = Scalars(1e-2, 11, 37);
      scalars.Set(kScalarBiasCorrection2, 0.15);
      update.inputs.push_back(scalars);
      const auto want = RunOn(ReferenceKernels(), update, 1);
      for (const Isa isa : RunnableIsas()) {
        SCOPED_TRACE(shape.ToString() + " on " + std::string(ToString(isa)));
        const auto got = RunOn(*MakeCpuKernels({.threads = 3, .isa = isa}), update, 3);
        const auto alone = RunOn(*MakeCpuKernels({.threads = 3, .isa = isa}), update, 1);
        for (size_t k = 0; k < got.size(); ++k) {
          EXPECT_TRUE(alone[k].SameBytes(got[k])) << "on one thread: output " << k;
          const bool is_weight = k == 0 || (weight > 0 && k + 1 == got.size());
          for (int64_t i = 0; i < got[k].type().shape.elements(); ++i) {
            // Sums of squares over at most 16 rows are f32, all others double. Of w, which rounds twice: the rate's
            // part of a step, whose factors have half of a mean's error each, and which is at most clip_threshold times
            // the root of the number of elements.
            const double place = is_weight && k > 0 && weight == 2 ? 0x1p-7 * std::fabs(want[k][i]) : 0;
            const double size = is_weight ? 4 + 1e-2 * 30 * std::sqrt(static_cast<double>(shape.elements()))
                                          : 20 * std::fabs(want[k][i]);
            EXPECT_NEAR(got[k][i], want[k][i], size * kU + place) << "output " << k;
          }
        }
      }
    }
  }
}

// torch.lerp's two formulas, by shares above and below a half.
TEST(Average, FollowsTorchsMovingAverage) {
  const TensorType f32{DType::kF32, {4}};
  const Tensor clip = Tensor::Of({DType::kF32, {2}}, {0.5, 1});
  for (const auto& [decay, golden] : {std::pair{0.9, goldens::kAverageSlow}, {0.3, goldens::kAverageFast}}) {
    Tensor average = Tensor::Of(f32, {0, 0, 0, 0});
    for (int step = 0; step < 3; ++step) {
      Tensor w(f32);
      for (int i = 0; i < 4; ++i) w.Set(i, 2 * std::sin(70 + step + 0.7 * i));
      const Tensor share = Tensor::Of({DType::kF64, {1}}, {step == 0 ? 1 : 1 - decay});
      average = std::move(RunOn(*MakeCpuKernels({}), {Op::kAverage, {average, w, clip, share}, {}}, 1)[0]);
      for (int i = 0; i < 4; ++i) {
        EXPECT_NEAR(average[i], golden[4 * step + i], (step + 1) * 8 * kU) << decay << " step " << step;
      }
    }
  }
}

TEST(Average, IsItsTwinToTheBitOnEveryInstructionSet) {
  for (const double share : {0.001, 0.75, 1.0}) {
    for (const int64_t n : kCounts) {
      const TensorType f32{DType::kF32, {n}};
      const OpCase average{Op::kAverage,
                           {Tensor::Random(f32, 1), Tensor::Random(f32, 2),
                            Tensor::Of({DType::kF32, {2}}, {1.0 / 37, 5}), Tensor::Of({DType::kF64, {1}}, {share})},
                           {}};
      const auto want = RunOn(ReferenceKernels(), average, 1);
      if (share == 1) EXPECT_TRUE(want[0].SameBytes(average.inputs[1])) << "the weight itself";
      for (const Isa isa : RunnableIsas()) {
        for (const int threads : {1, 3}) {
          const auto got = RunOn(*MakeCpuKernels({.threads = 3, .isa = isa}), average, threads);
          EXPECT_TRUE(got[0].SameBytes(want[0])) << "n " << n << " on " << ToString(isa);
        }
      }
    }
  }
}

// torch.optim.Muon with its iteration in double.
TEST(Muon, FollowsTorchs) {
  struct {
    Shape shape;
    Attributes settings;
    const double* golden;  // per step: w, momentum
  } const cases[] = {
      {{3, 5}, UpdateSettings(Op::kMuon), goldens::kMuonWide},
      {{5, 3}, UpdateSettings(Op::kMuon, {{"nesterov", 0}, {"match_rms_adamw", 1}}), goldens::kMuonTall}};
  const Tensor clip = Tensor::Of({DType::kF32, {2}}, {0.5, 1});  // of gradients twice as large
  for (const auto& [shape, settings, golden] : cases) {
    const TensorType f32{DType::kF32, shape};
    Attributes attributes = settings;
    attributes.Set("weight_decay", 0.1);
    Tensor w(f32), m(f32), g(f32);
    for (int64_t i = 0; i < 15; ++i) {
      w.Set(i, static_cast<double>(i * 7 % 13 - 6) / 8);
      m.Set(i, 0);
    }
    for (int step = 0; step < 2; ++step) {
      for (int64_t i = 0; i < 15; ++i) g.Set(i, static_cast<double>((i + step) * 5 % 11 - 5) / 8);
      auto out = RunOn(*MakeCpuKernels({}), {Op::kMuon, {w, g, m, clip, Scalars(1e-2, step + 1, 1)}, attributes}, 1);
      w = std::move(out[0]);
      m = std::move(out[1]);
      for (int i = 0; i < 15; ++i) {
        // A step of the iteration rounds sums of some 10 terms, and makes small singular values 3.4 times larger:
        // errors of 10 u grow to at most 500 times that, of which w sees the learning rate's part. w itself rounds
        // twice.
        EXPECT_NEAR(w[i], golden[30 * step + i], (step + 1) * (2 + 1e-2 * 5000) * kU) << shape.ToString();
        EXPECT_NEAR(m[i], golden[30 * step + 15 + i], (step + 1) * 3 * kU) << shape.ToString();
      }
    }
  }
}

TEST(Muon, AgreesWithItsTwin) {
  for (int weight = 0; weight < 3; ++weight) {  // none, f32, bf16
    for (const Shape& shape : {Shape{1, 7}, Shape{33, 17}, Shape{64, 64}, Shape{40, 150}, Shape{130, 40}}) {
      const TensorType f32{DType::kF32, shape};
      OpCase muon{Op::kMuon,
                  {Tensor::Random(f32, 1), Tensor::Random(f32, 2, 50), Tensor::Random(f32, 3),
                   Tensor::Of({DType::kF32, {2}}, {1.0 / 37, 5}), Scalars(1e-2, 11, 37)},
                  UpdateSettings(Op::kMuon)};
      muon.attributes.Set("weight_decay", 0.1);
      muon.attributes.Set("weight", int64_t{weight > 0});
      if (weight > 0) muon.attributes.Set("dtype", weight == 1 ? "f32" : "bf16");
      const auto want = RunOn(ReferenceKernels(), muon, 1);
      for (const Isa isa : RunnableIsas()) {
        const auto got = RunOn(*MakeCpuKernels({.threads = 3, .isa = isa}), muon, 3);
        // Sums of k terms err by some root of k roundoffs of their size; the iteration makes that at most 500 times
        // more.
        const double terms = std::sqrt(static_cast<double>(std::max(shape[0], shape[1])));
        for (int64_t i = 0; i < shape.elements(); ++i) {
          const double bound = (2 + 1e-2 * 1.6 * 500 * terms) * kU;
          EXPECT_NEAR(got[0][i], want[0][i], bound) << shape.ToString() << " on " << ToString(isa);
          EXPECT_NEAR(got[1][i], want[1][i], kU * 4) << shape.ToString();
          if (weight > 0) {
            const double place = weight == 1 ? 0 : 0x1p-8 * std::fabs(want[0][i]);
            EXPECT_NEAR(got[2][i], want[2][i], bound + 2 * place) << shape.ToString();
          }
        }
        const auto alone = RunOn(*MakeCpuKernels({.threads = 3, .isa = isa}), muon, 1);
        EXPECT_TRUE(alone[0].SameBytes(got[0])) << "on one thread: " << shape.ToString();
      }
    }
  }
}

}  // namespace
}  // namespace temper::update_test
