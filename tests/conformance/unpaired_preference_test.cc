// unpaired_preference: the fast kernel against its twin, and the twin's weights against the derivative of its loss.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "backend/cpu/reference/reference.h"
#include "graph/named_ops.h"
#include "op_case.h"

namespace temper::unpaired_preference_test {
namespace {

// Answers of these lengths, one after another in `T` tokens, then padding; every other one is bad. Every third token is
// of a prompt.
OpCase AnswersOf(const std::vector<int>& lengths, int64_t T, DType dtype) {
  std::vector<int32_t> target, document;
  std::vector<double> reference, rating, kl;
  const auto add = [&](int length, double of_reference, double of_rating, double of_kl) {
    const auto begin = static_cast<int32_t>(target.size());
    for (int i = 0; i < length; ++i) {
      target.push_back(i + 1 < length && i % 3 != 0 ? 7 : -1);
      document.push_back(begin);
      reference.push_back(of_reference);
      rating.push_back(of_rating);
      kl.push_back(of_kl);
    }
  };
  for (size_t i = 0; i < lengths.size(); ++i) {
    add(lengths[i], -0.5 * lengths[i] + static_cast<double>(i), i % 2 == 0 ? 1.5 : -3, 0.75);
  }
  while (static_cast<int64_t>(target.size()) < T) add(1, 0, 0, 0);
  const TensorType numbers{DType::kF32, {T}};
  return {Op::kUnpairedPreference,
          {Tensor::Random({dtype, {T}}, 3, 1.5), Tensor::Ints(target), Tensor::Of(numbers, reference),
           Tensor::Ints(document), Tensor::Of(numbers, rating), Tensor::Of(numbers, kl)},
          {{"beta", 0.3}, {"good_weight", 1.25}, {"bad_weight", 0.5}},
          /*rng_name_hash=*/0,
          /*may_lack_fast_kernel=*/dtype == DType::kF64};
}

const std::vector<int> kLengths = {3, 2, 1, 9, 17, 40, 2, 1};

// Both sum in double; only the log-probabilities of the twin's input are those of the kernel's, so that they round
// once.
TEST(UnpairedPreference, TheFastKernelDoesAsItsTwin) {
  for (const int64_t T : {75, 96}) {
    ExpectConforms(AnswersOf(kLengths, T, DType::kF32), [](int, int64_t) { return 1e-6; });
  }
  ExpectConforms(AnswersOf({}, 5, DType::kF32), [](int, int64_t) { return 0.0; });
}

TEST(UnpairedPreference, AnInvalidLogProbabilityIsNoGoodLoss) {
  OpCase answers = AnswersOf({3, 2}, 5, DType::kF32);
  answers.inputs[0].Set(1, std::nan(""));
  ExpectConforms(answers, [](int, int64_t) { return 1e-6; });
  EXPECT_TRUE(std::isnan(RunOn(ReferenceKernels(), answers, 1)[1][0]));
}

TEST(UnpairedPreference, WeightsAreMinusTheDerivativeOfTheLoss) {
  const OpCase answers = AnswersOf(kLengths, 80, DType::kF64);
  const auto loss_of = [&](int64_t token, double shift) {
    OpCase shifted = answers;
    shifted.inputs[0].Set(token, shifted.inputs[0][token] + shift);
    const std::vector<Tensor> out = RunOn(ReferenceKernels(), shifted, 1);
    double sum = 0;
    for (int64_t t = 0; t < 80; ++t) sum += out[1][t];
    return sum;
  };
  const std::vector<Tensor> out = RunOn(ReferenceKernels(), answers, 1);
  for (int64_t t = 0; t < 80; ++t) {
    constexpr double kStep = 1e-5;
    const double slope = (loss_of(t, kStep) - loss_of(t, -kStep)) / (2 * kStep);
    EXPECT_NEAR(out[0][t], -slope, 1e-6 * (1 + std::fabs(slope))) << t;
  }
}

}  // namespace
}  // namespace temper::unpaired_preference_test
