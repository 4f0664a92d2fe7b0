#include "train/divergence.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"

namespace temper {
namespace {

// How far above the start a loss must be, beside the noise that the start shows: training that begins with a low loss
// and a new optimizer raises it for a while.
constexpr double kPart = 0.1, kNats = 0.3;
// How far a loss of the start must be above those of unmoved weights to be from after a divergence.
constexpr double kFarPart = 0.25, kFarNats = 0.5;

}  // namespace

void Divergence::Take(double loss, double learning_rate) {
  if (static_cast<int64_t>(start.size()) == kStart) {
    above = loss > Limit() ? above + 1 : 0;
    return;
  }
  start.push_back(loss);
  if (!moved) ++unmoved;
  moved = moved || learning_rate > 0;
  if (static_cast<int64_t>(start.size()) < kStart) return;
  const double limit = Limit();
  const auto last_within = std::find_if(start.rbegin(), start.rend(), [&](double l) { return l <= limit; });
  above = last_within - start.rbegin();
}

double Divergence::FarAboveUnmoved() const {
  return (1 + kFarPart) * *std::max_element(start.begin(), start.begin() + unmoved) + kFarNats;
}

int64_t Divergence::Risen() const {
  const double far = FarAboveUnmoved();
  const auto last = std::find_if(start.rbegin(), start.rend(), [&](double loss) { return loss <= far; });
  return last - start.rbegin();
}

double Divergence::Limit() const {
  TEMPER_CHECK(static_cast<int64_t>(start.size()) == kStart);
  // A run may diverge within its start, which is then the part before. Noise may look the same: hence the second bound.
  const int64_t risen = Risen();
  const double lowest = *std::min_element(start.begin(), start.end());
  const double highest = *std::max_element(start.begin(), start.end() - risen);
  const double limit = std::max(highest, (1 + kPart) * lowest + kNats);
  return risen > 0 ? std::max(limit, FarAboveUnmoved()) : limit;
}

bool Divergence::WarningDue() const {
  int64_t due = kStreak;
  while (due < above) due *= 10;
  return due == above;
}

std::string Divergence::Describe(int64_t step) const {
  TEMPER_CHECK(diverged());
  return fmt::format("its loss began at {:.2f}, and from step {} on it was above {:.2f}", start.front(), Since(step),
                     Limit());
}

}  // namespace temper
