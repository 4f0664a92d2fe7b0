#include "format/weight_source.h"

#include <algorithm>
#include <set>
#include <utility>

#include "format/transpose.h"

namespace temper {
namespace {

Shape Zeros(int rank) {
  Shape zeros;
  for (int d = 0; d < rank; ++d) zeros.Append(0);
  return zeros;
}

Shape AtRow(const Shape& shape, int64_t row) {
  Shape begin = Zeros(shape.rank());
  begin.set_dim(0, row);
  return begin;
}

}  // namespace

WeightSource::WeightSource(FileTensor tensor) {
  boxes_.push_back({0, tensor.shape.rank() == 0 ? 1 : tensor.shape[0], Zeros(tensor.shape.rank())});
  tensors_.push_back(std::move(tensor));
}

WeightSource WeightSource::Rows(FileTensor tensor, int64_t first, int64_t rows) {
  return StridedRows(std::move(tensor), first, rows, /*stride=*/rows, /*groups=*/1);
}

WeightSource WeightSource::StridedRows(FileTensor tensor, int64_t first, int64_t rows, int64_t stride, int64_t groups) {
  TEMPER_CHECK(rows > 0 && groups > 0 && first >= 0 && first + (groups - 1) * stride + rows <= tensor.shape[0])
      << groups << " times " << rows << " rows of " << tensor.name << " " << tensor.shape.ToString();
  WeightSource source;
  for (int64_t g = 0; g < groups; ++g) source.boxes_.push_back({0, rows, AtRow(tensor.shape, first + g * stride)});
  source.tensors_.push_back(std::move(tensor));
  return source;
}

WeightSource WeightSource::Runs(FileTensor tensor, std::span<const std::pair<int64_t, int64_t>> runs) {
  WeightSource source;
  for (const auto& [first, rows] : runs) {
    TEMPER_CHECK(rows > 0 && first >= 0 && first + rows <= tensor.shape[0])
        << rows << " rows of " << tensor.name << " " << tensor.shape.ToString();
    source.boxes_.push_back({0, rows, AtRow(tensor.shape, first)});
  }
  source.tensors_.push_back(std::move(tensor));
  return source;
}

WeightSource WeightSource::Columns(FileTensor tensor, int64_t first, int64_t columns) {
  TEMPER_CHECK(columns > 0 && first >= 0 && first + columns <= Transposed(tensor.shape)[0])
      << columns << " columns of " << tensor.name << " " << tensor.shape.ToString();
  WeightSource source;
  source.transposed_ = true;
  source.boxes_.push_back({0, columns, AtRow(tensor.shape, first)});
  source.tensors_.push_back(std::move(tensor));
  return source;
}

WeightSource WeightSource::RowsOfEach(FileTensor tensor, int64_t first) {
  TEMPER_CHECK(tensor.shape.rank() == 3 && first >= 0 && first < tensor.shape[1])
      << "rows from " << first << " of each matrix of " << tensor.name << " " << tensor.shape.ToString();
  WeightSource source;
  source.boxes_.push_back({0, tensor.shape[0], Shape{0, first, 0}});
  source.tensors_.push_back(std::move(tensor));
  return source;
}

WeightSource WeightSource::Stack(std::vector<FileTensor> tensors) {
  WeightSource source;
  for (size_t i = 0; i < tensors.size(); ++i) {
    TEMPER_CHECK(tensors[i].shape == tensors[0].shape) << tensors[i].name << " in one stack with " << tensors[0].name;
    source.boxes_.push_back({i, 1, Zeros(tensors[i].shape.rank())});
  }
  source.tensors_ = std::move(tensors);
  return source;
}

WeightSource WeightSource::InTensor(std::string name, std::vector<std::string> aliases) const {
  TEMPER_CHECK(tensors_.size() == 1) << tensors_.size() << " tensors as " << name;
  WeightSource source = *this;
  source.tensors_[0].name = std::move(name);
  source.tensors_[0].aliases = std::move(aliases);
  return source;
}

std::vector<WeightSource::FilePart> WeightSource::FileParts(const PartView& part) const {
  const Shape& shape = part.view.type.shape;
  TEMPER_CHECK(!part.view.type.packed()) << part.view.type.ToString() << " has no rows to point at";
  if (shape.rank() == 0) return {{&tensors_[0], part}};
  const int64_t first = part.begin[0], end = first + shape[0];
  const int64_t row_bytes = shape[0] == 0 ? 0 : part.view.type.bytes().v / shape[0];
  std::vector<FilePart> parts;
  int64_t box_first = 0;
  for (const Box& box : boxes_) {
    const int64_t box_end = box_first + box.rows, low = std::max(first, box_first), high = std::min(end, box_end);
    const bool holds_empty = first == end && parts.empty() && (first < box_end || &box == &boxes_.back());
    if (low < high || holds_empty) {
      const FileTensor& tensor = tensors_[box.tensor];
      const int dropped = shape.rank() - tensor.shape.rank();  // 1: a row is the whole tensor
      PartView in_file;
      in_file.view = part.view;
      if (in_file.view.data != nullptr) in_file.view.data += (low - first) * row_bytes;
      in_file.global = transposed_ ? Transposed(tensor.shape) : tensor.shape;
      in_file.view.type.shape = Shape();
      for (int d = dropped; d < shape.rank(); ++d) {
        const int64_t at = d == 0 ? low - box_first : part.begin[d];
        in_file.begin.Append(box.begin[d - dropped] + at);
        in_file.view.type.shape.Append(d == 0 ? high - low : shape[d]);
      }
      if (holds_empty && dropped > 0) in_file.view.type.shape.set_dim(0, 0);
      parts.push_back({&tensor, in_file, transposed_});
    }
    box_first = box_end;
  }
  return parts;
}

std::vector<FileTensor> FileTensorsOf(std::span<const StoredWeight> weights) {
  std::vector<FileTensor> tensors;
  std::set<std::string_view> seen;
  for (const StoredWeight& weight : weights) {
    for (const FileTensor& tensor : weight.source.tensors()) {
      if (seen.insert(tensor.name).second) tensors.push_back(tensor);
    }
  }
  return tensors;
}

}  // namespace temper
