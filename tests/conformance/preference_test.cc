// preference: the fast kernel against its twin, and the twin's weights against the derivative of its loss.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "backend/cpu/reference/reference.h"
#include "base/philox.h"
#include "graph/named_ops.h"
#include "op_case.h"

namespace temper::preference_test {
namespace {

// Pairs of answers of these lengths, one after another in rows of `T` tokens, then padding. Every third token is of a
// prompt.
OpCase PairsOf(const std::vector<std::pair<int, int>>& lengths, int64_t T, DType dtype, Attributes attributes) {
  std::vector<int32_t> target, document, sample;
  std::vector<double> reference;
  const auto add = [&](int length, int32_t start, double of_reference) {
    const auto begin = static_cast<int32_t>(target.size());
    for (int i = 0; i < length; ++i) {
      target.push_back(i + 1 < length && i % 3 != 0 ? 7 : -1);
      document.push_back(begin);
      sample.push_back(start);
      reference.push_back(of_reference);
    }
  };
  for (const auto& [chosen, rejected] : lengths) {
    const auto start = static_cast<int32_t>(target.size());
    const double seed = static_cast<double>(start % 5);
    add(chosen, start, -0.5 * chosen - seed);
    add(rejected, start, -0.5 * rejected + seed);
  }
  while (static_cast<int64_t>(target.size()) < T) add(1, static_cast<int32_t>(target.size()), 0);
  Tensor logprob = Tensor::Random({dtype, {T}}, 3, 1.5);
  const std::string kind = attributes.String("kind");
  const bool odds = kind == "orpo";
  if (odds || kind == "simpo") std::fill(reference.begin(), reference.end(), 0.0);
  for (int64_t t = 0; odds && t < T; ++t) logprob.Set(t, -0.25 - std::fabs(logprob[t]));  // of likelihoods below 1
  std::vector<Tensor> inputs;
  inputs.push_back(std::move(logprob));
  inputs.push_back(Tensor::Ints(target));
  inputs.push_back(Tensor::Of({DType::kF32, {T}}, reference));
  inputs.push_back(Tensor::Ints(document));
  inputs.push_back(Tensor::Ints(sample));
  if (attributes.Flag("nll")) {
    inputs.push_back(Tensor::Of({DType::kF32, {T}}, std::vector<double>(static_cast<size_t>(T), 0.125)));
  }
  return {Op::kPreference, std::move(inputs), std::move(attributes),
          /*rng_name_hash=*/0,
          /*may_lack_fast_kernel=*/dtype == DType::kF64};
}

std::vector<Attributes> AllKinds() {
  std::vector<Attributes> all;
  for (const double beta : {0.1, 2.0}) {
    for (const char* kind : {"sigmoid", "hinge", "ipo", "sigmoid_norm"}) {
      all.push_back({{"kind", std::string(kind)}, {"beta", beta}});
    }
    all.push_back({{"kind", std::string("robust")}, {"beta", beta}, {"smoothing", 0.2}});
    all.push_back({{"kind", std::string("simpo")}, {"beta", beta}, {"smoothing", 0.1}, {"gamma", 0.5}});
    all.push_back({{"kind", std::string("sigmoid")}, {"beta", beta}, {"nll", int64_t{1}}, {"nll_weight", 0.7}});
    all.push_back({{"kind", std::string("orpo")},
                   {"beta", beta},
                   {"nll", int64_t{1}},
                   {"nll_weight", 1.0},
                   {"whole", int64_t{1}},
                   {"odds", int64_t{1}}});
  }
  return all;
}

// Some answers have nothing to predict, which has no odds.
const std::vector<std::pair<int, int>>& LengthsFor(const Attributes& attributes) {
  static const std::vector<std::pair<int, int>> kAny = {{3, 2}, {1, 9}, {17, 40}, {2, 1}},
                                                kPredicted = {{3, 4}, {5, 9}, {17, 37}};
  return attributes.Flag("odds") ? kPredicted : kAny;
}

// Both sum in double; only the log-probabilities of the twin's input are those of the kernel's, so that they round
// once.
TEST(Preference, TheFastKernelDoesAsItsTwin) {
  for (const Attributes& attributes : AllKinds()) {
    for (const int64_t T : {75, 96}) {
      ExpectConforms(PairsOf(LengthsFor(attributes), T, DType::kF32, attributes), [](int, int64_t) { return 1e-6; });
    }
  }
  ExpectConforms(PairsOf({}, 5, DType::kF32, AllKinds()[0]), [](int, int64_t) { return 0.0; });
}

TEST(Preference, AnInvalidLogProbabilityIsNoGoodLoss) {
  for (const Attributes& attributes : AllKinds()) {
    OpCase pairs = PairsOf({{3, 4}}, 7, DType::kF32, attributes);
    pairs.inputs[0].Set(1, std::nan(""));
    ExpectConforms(pairs, [](int, int64_t) { return 1e-6; });
    EXPECT_TRUE(std::isnan(RunOn(ReferenceKernels(), pairs, 1)[1][0])) << attributes.String("kind");
  }
}

// An answer of one word may have a likelihood of 1, or by rounding a little more.
TEST(Preference, TheOddsOfACertainAnswerAreFinite) {
  const Attributes orpo = AllKinds()[7];
  ASSERT_EQ(orpo.String("kind"), "orpo");
  for (const int certain : {0, 3}) {  // of the chosen, of the rejected
    for (const double logprob : {0.0, 1e-7}) {
      OpCase pairs = PairsOf({{3, 4}}, 7, DType::kF32, orpo);
      for (int t = certain; t < certain + 3; ++t) pairs.inputs[0].Set(t, logprob);
      ExpectConforms(pairs, [](int, int64_t) { return 1e-6; });
      for (const Tensor& out : RunOn(ReferenceKernels(), pairs, 1)) {
        for (int64_t t = 0; t < 7; ++t) EXPECT_TRUE(std::isfinite(out[t])) << certain << " " << logprob;
      }
    }
  }
}

TEST(Preference, WeightsAreMinusTheDerivativeOfTheLoss) {
  for (const Attributes& attributes : AllKinds()) {
    const OpCase pairs = PairsOf(LengthsFor(attributes), 80, DType::kF64, attributes);
    const auto loss_of = [&](int64_t token, double shift) {
      OpCase shifted = pairs;
      shifted.inputs[0].Set(token, shifted.inputs[0][token] + shift);
      const std::vector<Tensor> out = RunOn(ReferenceKernels(), shifted, 1);
      double sum = 0;
      for (int64_t t = 0; t < 80; ++t) sum += out[1][t];
      return sum;
    };
    const std::vector<Tensor> out = RunOn(ReferenceKernels(), pairs, 1);
    for (int64_t t = 0; t < 80; ++t) {
      constexpr double kStep = 1e-5;
      const double slope = (loss_of(t, kStep) - loss_of(t, -kStep)) / (2 * kStep);
      EXPECT_NEAR(out[0][t], -slope, 1e-6 * (1 + std::fabs(slope))) << t << " " << attributes.String("kind");
    }
  }
}

// A pair by hand: (log-probabilities -1 - 2, reference -4) against (-3, reference -2), so z = 1 - -1 = 2.
TEST(Preference, ReportsThePairAtItsFirstToken) {
  OpCase pair{Op::kPreference,
              {Tensor::Of({DType::kF32, {6}}, {-1, -2, 9, -3, 9, 9}), Tensor::Ints({5, 6, -1, 7, -1, -1}),
               Tensor::Of({DType::kF32, {6}}, {-4, -4, -4, -2, -2, 0}), Tensor::Ints({0, 0, 0, 3, 3, 5}),
               Tensor::Ints({0, 0, 0, 0, 0, 5})},
              {{"kind", std::string("sigmoid")}, {"beta", 0.5}}};
  const std::vector<Tensor> out = RunOn(ReferenceKernels(), pair, 1);
  const double weight = 0.5 / (1 + std::exp(1.0));
  const std::vector<std::vector<double>> want = {
      {weight, weight, 0, -weight, 0, 0}, {std::log1p(std::exp(-1.0))}, {0.5}, {-0.5}, {1}, {1}};
  for (size_t k = 0; k < want.size(); ++k) {
    for (int64_t t = 0; t < 6; ++t) {
      const double wanted = t < static_cast<int64_t>(want[k].size()) ? want[k][static_cast<size_t>(t)] : 0;
      EXPECT_NEAR(out[k][t], wanted, 1e-7) << k << " " << t;
    }
  }
}

}  // namespace
}  // namespace temper::preference_test
