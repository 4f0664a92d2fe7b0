#include "cluster/rate_fit.h"

#include <gtest/gtest.h>

namespace temper::rate_fit_test {
namespace {

TimedSample Sample(double flops, int64_t bytes, double seconds) {
  return {{.flops = {flops}, .read = {bytes}}, {seconds}};
}

TEST(FitRate, FindsTheTermsThatMadeTheTimes) {
  std::vector<TimedSample> samples;
  for (const auto& [flops, bytes] : {std::pair{1e8, 1000}, {1e9, 5000000}, {5e9, 2000000}, {2e10, 90000000}}) {
    samples.push_back(Sample(flops, bytes, 2e-5 + flops / 4e11 + bytes / 3e10));
  }
  const OpRate rate = FitRate(samples);
  EXPECT_NEAR(rate.launch.v, 2e-5, 1e-8);
  EXPECT_NEAR(rate.flops_per_second, 4e11, 1e8);
  EXPECT_NEAR(rate.bandwidth[0].bytes_per_second, 3e10, 1e7);
}

TEST(FitRate, NoTermIsNegative) {
  // More work in less time: impossible for a machine, but possible with noise.
  const std::vector<TimedSample> samples = {Sample(1e9, 1000000, 3e-3), Sample(2e9, 4000000, 2e-3),
                                            Sample(4e9, 1000000, 5e-3)};
  const OpRate rate = FitRate(samples);
  EXPECT_GE(rate.launch.v, 0);
  EXPECT_GE(rate.flops_per_second, 0);
  EXPECT_GT(rate.bandwidth[0].bytes_per_second, 0);
}

TEST(FitBandwidth, ReproducesTheTimesOfItsSamples) {
  const std::vector<TimedSample> samples = {Sample(0, 100, 1e-6), Sample(0, 1 << 16, 2e-6), Sample(0, 1 << 24, 1e-3)};
  const OpRate rate = FitBandwidth(samples);
  for (size_t i = 1; i < samples.size(); ++i) {
    const Bytes bytes = samples[i].cost.read;
    EXPECT_NEAR(rate.launch.v + static_cast<double>(bytes.v) / rate.BytesPerSecond(bytes), samples[i].seconds.v, 1e-9);
  }
}

}  // namespace
}  // namespace temper::rate_fit_test
