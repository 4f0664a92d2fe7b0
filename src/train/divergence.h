// Divergence: whether the loss of a run stays above its start (docs/howto/train.md says the rule). A value, part of a
// run's progress: all ranks have the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace temper {

struct Divergence {
  static constexpr int64_t kStart = 10;   // steps, whose losses are the start
  static constexpr int64_t kStreak = 20;  // losses in a row above it

  std::vector<double> start;  // losses of the first steps, up to now
  int64_t unmoved = 0;        // of these, from before the weights first changed
  bool moved = false;         // the weights have changed
  int64_t above = 0;          // losses in a row, up to now, above the limit

  // The next step's loss, and the learning rate of its update, which comes after the loss.
  void Take(double loss, double learning_rate);

  // REQUIRES: the start is over.
  double Limit() const;
  bool diverged() const { return above >= kStreak; }
  // In a run that goes on: when it has diverged, then after ten times as many steps, and so on.
  bool WarningDue() const;
  // The first step of the losses in a row above the limit, of a run that has made `step` steps.
  int64_t Since(int64_t step) const { return step - above + 1; }
  // "its loss began at 8.34, and from step 31 on it was above 10.93". REQUIRES: diverged.
  std::string Describe(int64_t step) const;

  bool operator==(const Divergence&) const = default;

 private:
  // How many losses of the start, its last ones, are far above those of unmoved weights.
  int64_t Risen() const;
  double FarAboveUnmoved() const;
};

}  // namespace temper
