// reward_loss: the fast kernel against its twin, and the twin's gradient against the derivative of its loss.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "backend/cpu/reference/reference.h"
#include "graph/named_ops.h"
#include "op_case.h"

namespace temper::reward_loss_test {
namespace {

// Pairs of answers of these lengths, one after another in rows of `T` tokens, then padding.
OpCase RankedPairs(const std::vector<std::pair<int, int>>& lengths, int64_t T, DType dtype, Attributes attributes) {
  std::vector<int32_t> document, sample;
  std::vector<double> margin;
  const auto add = [&](int length, int32_t start, double of_pair) {
    const auto begin = static_cast<int32_t>(document.size());
    for (int i = 0; i < length; ++i) {
      document.push_back(begin);
      sample.push_back(start);
      margin.push_back(of_pair);
    }
  };
  for (const auto& [chosen, rejected] : lengths) {
    const auto start = static_cast<int32_t>(document.size());
    add(chosen, start, 0.25 * (start % 5));
    add(rejected, start, 0.25 * (start % 5));
  }
  while (static_cast<int64_t>(document.size()) < T) add(1, static_cast<int32_t>(document.size()), 0);
  return {Op::kRewardLoss,
          {Tensor::Random({dtype, {T, 1}}, 3, 1.5), Tensor::Ints(document), Tensor::Ints(sample),
           Tensor::Of({DType::kF32, {T}}, margin)},
          std::move(attributes),
          /*rng_name_hash=*/0,
          /*may_lack_fast_kernel=*/dtype == DType::kF64};
}

const std::vector<std::pair<int, int>> kAnswers = {{3, 2}, {1, 9}, {17, 40}, {2, 1}};

// Both compute in double, and round once.
TEST(RewardLoss, TheFastKernelDoesAsItsTwin) {
  for (const double center : {0.0, 0.3}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int64_t grad : {0, 1}) {
        ExpectConforms(RankedPairs(kAnswers, 80, dtype, {{"center", center}, {"grad", grad}}),
                       [&](int output, int64_t) { return output == 5 && dtype == DType::kBF16 ? 1e-2 : 1e-6; });
      }
    }
  }
  ExpectConforms(RankedPairs({}, 5, DType::kF32, {{"grad", int64_t{1}}}), [](int, int64_t) { return 0.0; });
}

TEST(RewardLoss, AnInvalidRewardIsNoGoodLoss) {
  OpCase pairs = RankedPairs({{3, 2}}, 5, DType::kF32, {});
  pairs.inputs[0].Set(4, std::nan(""));
  ExpectConforms(pairs, [](int, int64_t) { return 1e-6; });
  EXPECT_TRUE(std::isnan(RunOn(ReferenceKernels(), pairs, 1)[0][0]));
}

TEST(RewardLoss, GradientsAreTheDerivativeOfTheLoss) {
  const OpCase pairs = RankedPairs(kAnswers, 80, DType::kF64, {{"center", 0.2}, {"grad", int64_t{1}}});
  const auto loss_of = [&](int64_t token, double shift) {
    OpCase shifted = pairs;
    shifted.inputs[0].Set(token, shifted.inputs[0][token] + shift);
    const std::vector<Tensor> out = RunOn(ReferenceKernels(), shifted, 1);
    double sum = 0;
    for (int64_t t = 0; t < 80; ++t) sum += out[0][t];
    return sum;
  };
  const std::vector<Tensor> out = RunOn(ReferenceKernels(), pairs, 1);
  for (int64_t t = 0; t < 80; ++t) {
    constexpr double kStep = 1e-5;
    const double slope = (loss_of(t, kStep) - loss_of(t, -kStep)) / (2 * kStep);
    EXPECT_NEAR(out[5][t], slope, 1e-6 * (1 + std::fabs(slope))) << t;
  }
}

// Ranks that share tokens: their terms add up to the gradient of one.
TEST(RewardLoss, EachRankHasTheGradientsOfItsOwnTokens) {
  const OpCase whole = RankedPairs(kAnswers, 80, DType::kF32, {{"grad", int64_t{1}}});
  const std::vector<Tensor> expected = RunOn(ReferenceKernels(), whole, 1);
  std::vector<double> sum(80);
  for (const auto& [begin, count] : {std::pair<int64_t, int64_t>{0, 30}, {30, 50}}) {
    OpCase part = whole;
    part.inputs.insert(part.inputs.begin(), Tensor::Random({DType::kF32, {count, 1}}, 9, 1.0));
    part.attributes.Set("own", int64_t{1});
    part.attributes.Set("begin", begin);
    ExpectConforms(part, [](int, int64_t) { return 1e-6; });
    const std::vector<Tensor> out = RunOn(ReferenceKernels(), part, 1);
    for (int64_t t = 0; t < 80; ++t) {
      EXPECT_EQ(out[0][t], expected[0][t]);
      sum[static_cast<size_t>(t)] += out[5][t];
    }
  }
  for (int64_t t = 0; t < 80; ++t) EXPECT_EQ(sum[static_cast<size_t>(t)], expected[5][t]) << t;
}

// By hand: rewards 2 and -1, margin 1, so z = 2; d = -1 / (1 + e^2).
TEST(RewardLoss, ReportsThePairAtItsFirstToken) {
  OpCase pair{Op::kRewardLoss,
              {Tensor::Of({DType::kF32, {6, 1}}, {9, 9, 2, 9, -1, 9}), Tensor::Ints({0, 0, 0, 3, 3, 5}),
               Tensor::Ints({0, 0, 0, 0, 0, 5}), Tensor::Of({DType::kF32, {6}}, {1, 1, 1, 1, 1, 0})},
              {{"grad", int64_t{1}}}};
  const std::vector<Tensor> out = RunOn(ReferenceKernels(), pair, 1);
  const double d = 1 / (1 + std::exp(2.0));
  const std::vector<std::vector<double>> want = {{std::log1p(std::exp(-2.0))}, {2}, {-1}, {1}, {3}, {0, 0, -d, 0, d}};
  for (size_t k = 0; k < want.size(); ++k) {
    for (int64_t t = 0; t < 6; ++t) {
      const double wanted = t < static_cast<int64_t>(want[k].size()) ? want[k][static_cast<size_t>(t)] : 0;
      EXPECT_NEAR(out[k][t], wanted, 1e-6) << k << " " << t;
    }
  }
}

}  // namespace
}  // namespace temper::reward_loss_test
