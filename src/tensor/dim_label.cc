#include "tensor/dim_label.h"

#include <algorithm>
#include <iterator>

namespace temper {
namespace {

constexpr std::string_view kLabelNames[] = {"-",         "hidden", "heads", "kv_heads", "ffn",    "vocab",
                                            "positions", "embed",  "norm",  "rank",     "experts"};
static_assert(std::size(kLabelNames) == static_cast<size_t>(DimLabel::kExperts) + 1);

}  // namespace

std::string_view ToString(DimLabel label) {
  return kLabelNames[static_cast<size_t>(label)];
}

std::optional<DimLabel> ParseDimLabel(std::string_view text) {
  const auto* const it = std::find(std::begin(kLabelNames), std::end(kLabelNames), text);
  if (it == std::end(kLabelNames)) return std::nullopt;
  return static_cast<DimLabel>(it - std::begin(kLabelNames));
}

bool DimLabels::Has(DimLabel label) const {
  return std::find(labels_.begin(), labels_.begin() + rank_, label) != labels_.begin() + rank_;
}

std::string DimLabels::ToString() const {
  std::string text;
  for (int d = 0; d < rank_; ++d) {
    if (d > 0) text += ',';
    text += temper::ToString((*this)[d]);
  }
  return text;
}

std::optional<DimLabels> DimLabels::Parse(std::string_view text) {
  DimLabels labels;
  for (;;) {
    const size_t comma = text.find(',');
    const std::optional<DimLabel> label = ParseDimLabel(text.substr(0, comma));
    if (!label || labels.rank_ == Shape::kMaxRank) return std::nullopt;
    labels.labels_[labels.rank_++] = *label;
    if (comma == std::string_view::npos) return labels;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace temper
