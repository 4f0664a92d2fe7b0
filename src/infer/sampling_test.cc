#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "infer/generator.h"

namespace temper::sampling_test {
namespace {

std::map<int32_t, int> Draw(const std::vector<float>& logits, const SamplingSpec& spec, int n) {
  std::map<int32_t, int> counts;
  for (int i = 0; i < n; ++i) ++counts[SampleToken(logits, spec, static_cast<uint64_t>(i))];
  return counts;
}

TEST(SampleToken, TemperatureZeroTakesTheMostProbableTheFirstOfEquals) {
  EXPECT_EQ(SampleToken(std::vector<float>{0, 3, 1, 3}, {}, 0), 1);
  EXPECT_EQ(SampleToken(std::vector<float>{-5}, {}, 9), 0);
  EXPECT_EQ(SampleToken(std::vector<float>{0, 3, 1}, {.temperature = -1}, 0), 1);
}

TEST(SampleToken, DrawsByProbability) {
  // Softmax of log p is p: 4000 draws of p are within five standard deviations of 4000 p.
  const std::vector<double> p = {0.5, 0.3, 0.15, 0.05};
  std::vector<float> logits;
  for (double x : p) logits.push_back(static_cast<float>(std::log(x)));
  const int n = 4000;
  auto counts = Draw(logits, {.temperature = 1}, n);
  for (int32_t t = 0; t < 4; ++t) {
    const double q = p[static_cast<size_t>(t)];
    EXPECT_NEAR(counts[t], n * q, 5 * std::sqrt(n * q * (1 - q))) << t;
  }
  // At half the temperature probabilities are squared and normalised.
  counts = Draw(logits, {.temperature = 0.5}, n);
  const double q = 0.25 / (0.25 + 0.09 + 0.0225 + 0.0025);
  EXPECT_NEAR(counts[0], n * q, 5 * std::sqrt(n * q * (1 - q)));
}

TEST(SampleToken, TopKAndTopPCutTheTail) {
  const std::vector<float> logits = {std::log(0.05f), std::log(0.5f), std::log(0.3f), std::log(0.15f)};
  auto counts = Draw(logits, {.temperature = 1, .top_k = 2}, 1000);
  EXPECT_EQ(counts[0] + counts[3], 0);
  EXPECT_GT(counts[2], 200);
  EXPECT_EQ(Draw(logits, {.temperature = 1, .top_k = 1}, 100)[1], 100);
  EXPECT_EQ(Draw(logits, {.temperature = 1, .top_k = 100}, 1000).size(), 4u);
  // 0.5 does not reach 0.6, 0.5 + 0.3 does; 0.5 alone reaches 0.4; the most probable always stays.
  counts = Draw(logits, {.temperature = 1, .top_p = 0.6}, 1000);
  EXPECT_EQ(counts[0] + counts[3], 0);
  EXPECT_GT(counts[2], 200);
  EXPECT_EQ(Draw(logits, {.temperature = 1, .top_p = 0.4}, 100)[1], 100);
  EXPECT_EQ(Draw(logits, {.temperature = 1, .top_p = 0}, 100)[1], 100);
  EXPECT_EQ(Draw(logits, {.temperature = 1, .top_k = 3, .top_p = 0.99}, 1000)[0], 0) << "both cut";
}

TEST(SampleToken, TopKKeepsThoseAsProbableAsTheLast) {
  // TopKLogitsWarper removes what is below the k-th logit.
  EXPECT_EQ(Draw({1, 3, 2, 2, 2, 0}, {.temperature = 1, .top_k = 2}, 1000).size(), 4u);
}

TEST(SampleToken, MinPCutsByTheRatioToTheMostProbable) {
  const std::vector<double> p = {0.1, 0.4, 0.3, 0.2};
  std::vector<float> logits;
  for (double x : p) logits.push_back(static_cast<float>(std::log(x)));
  const auto kept = [&](const SamplingSpec& spec) {
    std::vector<int32_t> ids;
    for (const auto& [id, n] : Draw(logits, spec, 2000)) ids.push_back(id);
    return ids;
  };
  // MinPLogitsWarper removes p < min_p * max p. The ratios are 0.25, 1, 0.75, 0.5.
  EXPECT_EQ(kept({.temperature = 1, .min_p = 0.2}), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(kept({.temperature = 1, .min_p = 0.4}), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(kept({.temperature = 1, .min_p = 0.6}), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(kept({.temperature = 1, .min_p = 1}), (std::vector<int32_t>{1}));
  // The temperature comes first: at half of it ratios are squared.
  EXPECT_EQ(kept({.temperature = 0.5, .min_p = 0.4}), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(kept({.temperature = 1, .top_k = 2, .min_p = 0.4}), (std::vector<int32_t>{1, 2})) << "each cut counts";
  // What is left is drawn by its probability: 0.4 / 0.7.
  const int n = 4000;
  auto counts = Draw(logits, {.temperature = 1, .min_p = 0.6}, n);
  EXPECT_NEAR(counts[1], n * 4 / 7.0, 5 * std::sqrt(n * 4 / 7.0 * 3 / 7.0));
}

TEST(PenalizeRepetition, DividesPositiveLogitsAndMultipliesNegativeOnesOnce) {
  // RepetitionPenaltyLogitsProcessor: score < 0 ? score * penalty : score / penalty.
  std::vector<float> logits = {3, -2, 0, 5, -1};
  PenalizeRepetition(logits, std::vector<int32_t>{1, 0, 1, 0, 2}, 1.5);
  EXPECT_EQ(logits, (std::vector<float>{2, -3, 0, 5, -1}));
  PenalizeRepetition(logits, std::vector<int32_t>{3}, 0.5);
  EXPECT_EQ(logits[3], 10) << "below 1 it rewards repetition";
}

TEST(SampleToken, OneSeedGivesOneTextAnotherAnother) {
  std::vector<float> logits(1000, 0.f);
  std::vector<int32_t> a, b, c;
  for (uint64_t i = 0; i < 20; ++i) {
    a.push_back(SampleToken(logits, {.temperature = 1, .seed = 1}, i));
    b.push_back(SampleToken(logits, {.temperature = 1, .seed = 1}, i));
    c.push_back(SampleToken(logits, {.temperature = 1, .seed = 2}, i));
  }
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
  EXPECT_NE(a[0], a[1]) << "draws differ from place to place";
}

TEST(SampleToken, ExtremeLogitsAndTemperaturesGiveTheBest) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(SampleToken(std::vector<float>{0, inf, 1}, {.temperature = 1}, 3), 1);
  EXPECT_EQ(SampleToken(std::vector<float>{-inf, -inf, 1}, {.temperature = 1}, 3), 2);
  EXPECT_EQ(SampleToken(std::vector<float>{1e30f, -1e30f}, {.temperature = 1e-300}, 3), 0);
  EXPECT_EQ(SampleToken(std::vector<float>{1, 2, 3}, {.temperature = 1e-9}, 3), 2);
  EXPECT_EQ(Draw({3.f, -3e38f}, {.temperature = 1e300}, 1000).size(), 2u) << "all alike when it is hot";
}

}  // namespace
}  // namespace temper::sampling_test
