#include "cluster/rate_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace temper {
namespace {

constexpr size_t kTerms = 3;
using Terms = std::array<double, kTerms>;  // launch, seconds per FLOP, seconds per byte
using Use = std::array<bool, kTerms>;

Terms TermsOf(const TimedSample& s) {
  return {1.0, s.cost.flops.v, static_cast<double>((s.cost.read + s.cost.written).v)};
}

// The terms in `use` that minimize sum((prediction / measured - 1)^2), others 0; by elimination on the normal
// equations, whose columns are scaled to 1. NaN if they are singular.
Terms Solve(std::span<const TimedSample> samples, const Use& use) {
  Terms scale{};
  for (const TimedSample& s : samples) {
    const Terms t = TermsOf(s);
    for (size_t i = 0; i < kTerms; ++i) scale[i] = std::max(scale[i], t[i] / s.seconds.v);
  }
  double m[kTerms][kTerms + 1] = {};
  for (const TimedSample& s : samples) {
    const Terms t = TermsOf(s);
    for (size_t i = 0; i < kTerms; ++i) {
      const double a = scale[i] > 0 ? t[i] / s.seconds.v / scale[i] : 0;
      for (size_t k = 0; k < kTerms; ++k) m[i][k] += a * (scale[k] > 0 ? t[k] / s.seconds.v / scale[k] : 0);
      m[i][kTerms] += a;
    }
  }
  for (size_t i = 0; i < kTerms; ++i) {
    if (use[i]) continue;
    for (size_t k = 0; k <= kTerms; ++k) m[i][k] = 0;
    for (auto& row : m) row[i] = 0;
    m[i][i] = 1;
  }
  for (size_t i = 0; i < kTerms; ++i) {
    if (std::abs(m[i][i]) < 1e-9) return {NAN, NAN, NAN};
    for (size_t r = 0; r < kTerms; ++r) {
      if (r == i) continue;
      const double factor = m[r][i] / m[i][i];
      for (size_t k = i; k <= kTerms; ++k) m[r][k] -= factor * m[i][k];
    }
  }
  Terms x{};
  for (size_t i = 0; i < kTerms; ++i) x[i] = scale[i] > 0 ? m[i][kTerms] / m[i][i] / scale[i] : 0;
  return x;
}

double ErrorOf(std::span<const TimedSample> samples, const Terms& x) {
  double sum = 0;
  for (const TimedSample& s : samples) {
    const Terms t = TermsOf(s);
    double predicted = 0;
    for (size_t i = 0; i < kTerms; ++i) predicted += x[i] * t[i];
    sum += (predicted / s.seconds.v - 1) * (predicted / s.seconds.v - 1);
  }
  return sum;
}

}  // namespace

// Three terms have seven subsets: each is solved, and the best whose terms are all positive is taken.
OpRate FitRate(std::span<const TimedSample> samples) {
  TEMPER_CHECK(!samples.empty()) << "no samples to fit";
  Terms best{};
  double least = std::numeric_limits<double>::infinity();
  for (unsigned subset = 1; subset < 1u << kTerms; ++subset) {
    const Use use = {(subset & 1) != 0, (subset & 2) != 0, (subset & 4) != 0};
    const Terms x = Solve(samples, use);
    if (!std::all_of(x.begin(), x.end(), [](double v) { return v >= 0; })) continue;
    if (const double error = ErrorOf(samples, x); error < least) {
      least = error;
      best = x;
    }
  }
  TEMPER_CHECK(std::isfinite(least)) << "no rate fits";
  // If the samples show no effect of bytes, bandwidth is unbounded.
  constexpr double kUnbounded = 1e18;
  OpRate rate{.launch = {best[0]}, .flops_per_second = best[1] > 0 ? 1 / best[1] : 0};
  rate.bandwidth = {{Bytes{1}, best[2] > 0 ? 1 / best[2] : kUnbounded}};
  return rate;
}

OpRate FitBandwidth(std::span<const TimedSample> samples) {
  TEMPER_CHECK(samples.size() >= 2) << "too few samples for a bandwidth";
  OpRate rate{.launch = samples[0].seconds};
  for (const TimedSample& s : samples.subspan(1)) {
    const Bytes bytes = s.cost.read + s.cost.written;
    const double moving = std::max(s.seconds.v - rate.launch.v, 0.05 * s.seconds.v);
    rate.bandwidth.push_back({bytes, static_cast<double>(bytes.v) / moving});
  }
  return rate;
}

}  // namespace temper
