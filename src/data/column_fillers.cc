#include "data/column_fillers.h"

#include <algorithm>
#include <array>

namespace temper {
namespace {

// A filler of values of T: `value(slice, i)` of token i, `padding(place)` of no token.
template <class T, T (*value)(const SampleSlice&, int64_t), T (*padding)(int64_t)>
constexpr ColumnFiller FillerBy(const ColumnSpec& column) {
  return {column,
          [](const SampleSlice& slice, std::byte* out) {
            T* const values = reinterpret_cast<T*>(out);
            for (int64_t k = 0; k < slice.count; ++k) values[k] = value(slice, slice.first + k);
          },
          [](int64_t place, int64_t count, std::byte* out) {
            T* const values = reinterpret_cast<T*>(out);
            for (int64_t k = 0; k < count; ++k) values[k] = padding(place + k);
          }};
}

template <class T, int number>
T Always(int64_t) {
  return T{number};
}

int32_t TokenAt(const SampleSlice& s, int64_t i) {
  return s.sample.token(i);
}
int32_t TargetAt(const SampleSlice& s, int64_t i) {
  return s.predicts(i) ? s.sample.token(i + 1) : -1;
}
int32_t NextAt(const SampleSlice& s, int64_t i) {
  return i + 1 < s.end ? s.sample.token(i + 1) : -1;
}
float WeightAt(const SampleSlice& s, int64_t i) {
  return s.predicts(i) ? static_cast<float>(WeightValue(s.sample.weight(i + 1))) : 0;
}
int32_t PositionAt(const SampleSlice& s, int64_t i) {
  return static_cast<int32_t>(i - s.begin);
}
int32_t StartOf(const SampleSlice& s, int64_t) {
  return static_cast<int32_t>(s.start + s.begin);
}
int32_t LengthOf(const SampleSlice& s, int64_t) {
  return static_cast<int32_t>(s.end - s.begin);
}
int32_t SampleStartOf(const SampleSlice& s, int64_t) {
  return static_cast<int32_t>(s.start);
}
float ScoreOf(const SampleSlice& s, int64_t) {
  return s.score;
}
int32_t LabelAt(const SampleSlice& s, int64_t i) {
  return s.is_judged(i) ? s.values.label : -1;
}
float MarginOf(const SampleSlice& s, int64_t) {
  return s.values.margin;
}
float NllScaleOf(const SampleSlice& s, int64_t) {
  return s.step.nll_scale;
}
float RatingOf(const SampleSlice& s, int64_t) {
  return s.values.desirable != 0 ? s.step.good : -s.step.bad;
}
float KlOf(const SampleSlice& s, int64_t) {
  return s.step.kl;
}
float OneOf(const SampleSlice&, int64_t) {
  return 1;
}
int32_t OwnPlace(int64_t place) {  // nothing attends to padding, and it attends only to itself
  return static_cast<int32_t>(place);
}

constexpr std::array kFillers = {
    FillerBy<int32_t, TokenAt, Always<int32_t, 0>>(kTokenColumn),
    FillerBy<int32_t, TargetAt, Always<int32_t, -1>>(kTargetColumn),
    FillerBy<int32_t, NextAt, Always<int32_t, -1>>(kNextColumn),
    FillerBy<float, WeightAt, Always<float, 0>>(kWeightColumn),
    FillerBy<int32_t, PositionAt, Always<int32_t, 0>>(kPositionColumn),
    FillerBy<int32_t, StartOf, OwnPlace>(kDocumentStartColumn),
    FillerBy<int32_t, LengthOf, Always<int32_t, 1>>(kDocumentLengthColumn),
    FillerBy<int32_t, SampleStartOf, OwnPlace>(kSampleStartColumn),
    FillerBy<float, ScoreOf, Always<float, 0>>(kReferenceColumn),
    FillerBy<float, NllScaleOf, Always<float, 0>>(kNllScaleColumn),
    FillerBy<float, RatingOf, Always<float, 0>>(kRatingColumn),
    FillerBy<float, KlOf, Always<float, 0>>(kKlColumn),
    FillerBy<float, MarginOf, Always<float, 0>>(kMarginColumn),
    FillerBy<int32_t, LabelAt, Always<int32_t, -1>>(kLabelColumn),
    FillerBy<float, OneOf, Always<float, 0>>(kPresentColumn),
};

}  // namespace

const ColumnFiller* FillerOf(std::string_view input) {
  const auto found =
      std::find_if(kFillers.begin(), kFillers.end(), [&](const ColumnFiller& f) { return f.column.name == input; });
  return found == kFillers.end() ? nullptr : &*found;
}

}  // namespace temper
