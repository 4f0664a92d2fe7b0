// DimLabel: what a dim of a weight stands for. Models label the dims of their weights; default sharding goes by label
// (compile/mesh/sharding_rules.h), so it needs no model's names. Pure data.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "tensor/shape.h"

namespace temper {

enum class DimLabel : uint8_t {
  kNone,
  kHidden,     // the residual stream's width
  kHeads,      // query heads, head_dim elements each
  kKvHeads,    // key and value heads, head_dim elements each
  kFfn,        // the width between the products of an MLP
  kVocab,      // tokens of the vocabulary
  kPositions,  // rows of a learned table of positions
  kEmbed,      // the width of embeddings where it is not the residual stream's
  kNorm,       // what a norm scales or shifts: whole wherever it is applied
  kRank,       // LoRA's r: never split by tensor parallelism
  kExperts,    // experts of a mixture, one after another
};
std::string_view ToString(DimLabel label);  // "kv_heads"; "-" for kNone
std::optional<DimLabel> ParseDimLabel(std::string_view text);

// A dim of a weight: what it stands for, and its size.
struct Dim {
  DimLabel label = DimLabel::kNone;
  int64_t size = 0;
};

// The labels of one weight's dims, in order.
class DimLabels {
 public:
  DimLabels() = default;
  DimLabels(std::initializer_list<DimLabel> labels) {
    for (const DimLabel label : labels) Append(label);
  }
  void Append(DimLabel label) {
    TEMPER_CHECK(rank_ < Shape::kMaxRank) << "a label after " << ToString();
    labels_[rank_++] = label;
  }

  bool empty() const { return rank_ == 0; }
  int rank() const { return rank_; }
  DimLabel operator[](int dim) const { return dim < rank_ ? labels_[static_cast<size_t>(dim)] : DimLabel::kNone; }
  bool Has(DimLabel label) const;
  std::string ToString() const;  // "heads,hidden"
  static std::optional<DimLabels> Parse(std::string_view text);
  friend bool operator==(const DimLabels&, const DimLabels&) = default;

 private:
  std::array<DimLabel, Shape::kMaxRank> labels_{};
  uint8_t rank_ = 0;
};

}  // namespace temper
