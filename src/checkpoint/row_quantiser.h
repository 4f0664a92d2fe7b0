// Quantises a tensor of a file into the rows of a buffer, some rows at a time, so that no tensor is in memory in
// another type. Scales are those of the whole tensor, also where the buffer has a part of its rows or columns, which
// costs reading the rest: of int8 rows whole rows, of NF4 the whole tensor once more, for the mean and the groups of
// its absmaxes (FormatRule::maker). Each matrix of a stack is a tensor in this sense. What files have in the buffer's
// format keeps its bits.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "format/model_weights.h"
#include "tensor/format_rule.h"
#include "tensor/view.h"

namespace temper {

class RowQuantiser {
 public:
  // Reads a part of the tensor as f32.
  using Read = std::function<Status(const PartView&)>;

  // `entry` is what `read` reads, or the transpose of that. REQUIRES: piece is of rank 2 or 3 and quantised, and
  // `entry` stored so if only files make that format. Remembers what it found out of the last tensor: the parts of one
  // are best filled in turn. Fails if an element is not finite.
  Status Fill(const ModelWeights::Entry& entry, bool transposed, const PartView& piece, const Read& read);

 private:
  using Row = std::function<Status(int64_t row, std::span<const float> x)>;
  Status FillStored(const ModelWeights::Entry& entry, const PartView& piece);
  Status FillMatrix(const ModelWeights::Entry& entry, const PartView& piece, const Read& read);
  // Some columns of rows [begin, end) of a tensor of that shape.
  Status ForRows(const Shape& tensor, int64_t begin, int64_t end, int64_t column, int64_t columns, const Read& read,
                 const Row& row);

  std::vector<float> numbers_;
  int64_t window_ = 0;  // elements that are read at a time, or a row if that has more
  int64_t matrix_ = 0;  // of a stack
  // What is known of the tensor and, where it is quantised here, of this matrix of it in this format.
  const StoredTensor* tensor_ = nullptr;
  int64_t of_matrix_ = 0;
  ElementFormat of_format_;
  std::unique_ptr<RowMaker> maker_;
  std::unique_ptr<QuantisedTensor::Rows> stored_;
};

}  // namespace temper
