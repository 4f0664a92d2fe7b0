// ClassCounts: how often a class was right, was predicted, and both, from which F1 follows. Accuracy is a mean over
// sequences and needs no counts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace temper {

class ClassCounts {
 public:
  explicit ClassCounts(int64_t classes);

  // Of each token its label and prediction; those without a label, -1, do not count.
  void Add(std::span<const int32_t> labels, std::span<const float> predictions);
  // To be added up over ranks.
  std::span<double> counts() { return counts_; }

  int64_t classes() const { return classes_; }
  // 2 * both / (right + predicted), as scikit-learn has it; 0 for a class that is neither.
  double F1(int64_t c) const;
  // The mean over classes that are right or predicted somewhere, as f1_score(average="macro").
  double MacroF1() const;

 private:
  enum Kind { kBoth, kRight, kPredicted, kKinds };
  double At(Kind kind, int64_t c) const { return counts_[static_cast<size_t>(c * kKinds + kind)]; }

  const int64_t classes_;
  std::vector<double> counts_;  // exact up to 2^53
};

}  // namespace temper
