#include "train/class_counts.h"

#include "base/check.h"

namespace temper {

ClassCounts::ClassCounts(int64_t classes) : classes_(classes), counts_(static_cast<size_t>(classes * kKinds)) {}

void ClassCounts::Add(std::span<const int32_t> labels, std::span<const float> predictions) {
  TEMPER_CHECK(labels.size() == predictions.size()) << labels.size() << " labels, " << predictions.size();
  const auto count = [&](Kind kind, int64_t c) { ++counts_[static_cast<size_t>(c * kKinds + kind)]; };
  for (size_t t = 0; t < labels.size(); ++t) {
    const int64_t label = labels[t];
    if (label < 0) continue;
    const auto predicted = static_cast<int64_t>(predictions[t]);
    TEMPER_CHECK(label < classes_ && predicted >= 0 && predicted < classes_) << label << " " << predicted;
    count(kRight, label);
    count(kPredicted, predicted);
    if (label == predicted) count(kBoth, label);
  }
}

double ClassCounts::F1(int64_t c) const {
  const double all = At(kRight, c) + At(kPredicted, c);
  return all == 0 ? 0 : 2 * At(kBoth, c) / all;
}

double ClassCounts::MacroF1() const {
  double sum = 0, there = 0;
  for (int64_t c = 0; c < classes_; ++c) {
    if (At(kRight, c) + At(kPredicted, c) == 0) continue;
    sum += F1(c);
    ++there;
  }
  return there == 0 ? 0 : sum / there;
}

}  // namespace temper
