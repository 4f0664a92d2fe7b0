#include "checkpoint/gguf_rows.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "format/transpose.h"

namespace temper {
namespace {

// [rows, columns] to [columns, rows].
void Turn(std::span<const float> from, int64_t rows, int64_t columns, std::span<float> to) {
  Transpose(reinterpret_cast<const std::byte*>(from.data()), rows, columns, columns,
            reinterpret_cast<std::byte*>(to.data()), rows, sizeof(float));
}

}  // namespace

Result<GgufRowReader> GgufRowReader::Open(MergedWeights& weights, const GgufTensor& tensor) {
  GgufRowReader reader(tensor);
  reader.Measure();
  for (const StoredWeight& part : tensor.parts) TEMPER_RETURN_IF_ERROR(reader.AddPart(weights, part));
  return reader;
}

void GgufRowReader::Measure() {
  GgufTensor as_stored = *tensor_;
  as_stored.shape.clear();
  const std::vector<int64_t> dims = as_stored.dims();
  columns_ = dims.size() == 1 ? 1 : dims.back();
  rows_ = 1;
  for (size_t d = 0; d < std::max<size_t>(1, dims.size() - 1); ++d) rows_ *= dims[d];
  stored_columns_ = columns_;
  row_step_ = std::max<int64_t>(1, tensor_->order.head);
  if (tensor_->turned > 0) {
    rows_ = rows_ / tensor_->turned * columns_;
    row_step_ = columns_;
    columns_ = tensor_->turned;
  }
}

Status GgufRowReader::AddPart(MergedWeights& weights, const StoredWeight& part) {
  const WeightSource& source = part.source;
  std::vector<Segment> of_tensor(source.tensors().size());
  for (size_t i = 0; i < of_tensor.size(); ++i) {
    const FileTensor& file = source.tensors()[i];
    const MergedWeights::Tensor* const found = weights.FindWeight(file.name);
    TEMPER_CHECK(found != nullptr) << tensor_->name << ": no tensor " << file.name;
    TEMPER_ASSIGN_OR_RETURN(MergedWeights::Reader reader, weights.OpenReader(*found));
    of_tensor[i].reader = std::make_shared<const MergedWeights::Reader>(std::move(reader));
    if (found->from.quantised != nullptr && !found->changed()) {
      of_tensor[i].blocks = dynamic_cast<const BlockTensor*>(found->from.quantised);
    }
    if (!source.transposed() || file.shape.rank() != 2) continue;
    std::vector<float> all(static_cast<size_t>(file.shape.elements())), turned(all.size());
    TEMPER_RETURN_IF_ERROR(of_tensor[i].reader->Read(0, file.shape[0], all, {}));
    Turn(all, file.shape[0], file.shape[1], turned);
    of_tensor[i].turned = std::make_shared<const std::vector<float>>(std::move(turned));
  }
  for (const WeightSource::Box& box : source.boxes()) {
    const Shape& file = source.tensors()[box.tensor].shape;
    if (file.rank() == 3 && part.shape.rank() == 3 && file[1] > 1 && !source.transposed()) {
      // A reader's row is a matrix, which is read whole: pieces begin with one.
      row_step_ = part.shape[1];
      for (int64_t matrix = 0; matrix < box.rows; ++matrix) {
        Segment segment = of_tensor[box.tensor];
        segment.matrix = box.begin[0] + matrix;
        segment.elements = file[1] * file[2];
        segment.first = box.begin[1];
        segment.rows = part.shape[1];
        segments_.push_back(std::move(segment));
      }
      continue;
    }
    const bool stacked = file.rank() < part.shape.rank();
    Segment segment = of_tensor[box.tensor];
    segment.first = box.begin.rank() == 0 ? 0 : box.begin[0];
    segment.rows = stacked ? file[0] : box.rows;
    const int64_t columns = segment.turned ? file[0] : segment.reader->columns();
    TEMPER_CHECK(columns == stored_columns_) << tensor_->name << ": rows of " << columns << " in " << stored_columns_;
    segments_.push_back(std::move(segment));
  }
  return OkStatus();
}

Status GgufRowReader::Read(int64_t first, int64_t rows, std::span<float> out, std::span<std::byte> staging) const {
  if (tensor_->parts.empty()) {
    std::copy_n(tensor_->numbers.begin() + first, rows, out.begin());
  } else if (tensor_->turned > 0) {
    std::vector<float> stored(out.size());
    const int64_t heads = rows / row_step_, head = tensor_->turned, elements = head * row_step_;
    TEMPER_RETURN_IF_ERROR(ReadRuns(first / row_step_ * head, heads * head, stored, staging));
    for (int64_t h = 0; h < heads; ++h) {
      const auto at = static_cast<size_t>(h * elements), count = static_cast<size_t>(elements);
      Turn(std::span(stored).subspan(at, count), head, row_step_, out.subspan(at, count));
    }
  } else {
    TEMPER_RETURN_IF_ERROR(ReadRuns(first, rows, out, staging));
  }
  Reorder(rows, std::as_writable_bytes(out));
  ReorderColumns(out);
  if (tensor_->change == GgufChange::kMinusExp) {
    for (float& x : out) x = -std::exp(x);
  }
  if (tensor_->added != 0) {
    for (float& x : out) x += tensor_->added;
  }
  if (tensor_->scale != 1) {
    for (float& x : out) x = static_cast<float>(x * tensor_->scale);
  }
  return OkStatus();
}

bool GgufRowReader::IsStoredAs(const BlockFormat& format) const {
  const GgufTensor& t = *tensor_;
  const bool as_it_is =
      t.turned == 0 && t.rows.empty() && t.columns.empty() && t.change == GgufChange() && t.added == 0 && t.scale == 1;
  return as_it_is && !segments_.empty() && std::all_of(segments_.begin(), segments_.end(), [&](const Segment& segment) {
           return segment.blocks != nullptr && segment.matrix < 0 && segment.blocks->blocks().id == format.id;
         });
}

Status GgufRowReader::ReadBlocks(int64_t first, int64_t rows, std::span<std::byte> out) const {
  const int64_t bytes = std::ssize(out) / rows;
  int64_t begin = 0;  // of the segment, in rows of the parts
  for (const Segment& segment : segments_) {
    const int64_t low = std::max(first, begin), high = std::min(first + rows, begin + segment.rows);
    if (low < high) {
      const auto part =
          out.subspan(static_cast<size_t>((low - first) * bytes), static_cast<size_t>((high - low) * bytes));
      TEMPER_RETURN_IF_ERROR(segment.blocks->ReadBlocks(segment.first + low - begin, high - low, part));
    }
    begin += segment.rows;
  }
  Reorder(rows, out);
  return OkStatus();
}

Status GgufRowReader::ReadRuns(int64_t first, int64_t rows, std::span<float> out, std::span<std::byte> staging) const {
  if (tensor_->rows.empty()) return ReadParts(first, rows, out, staging);
  int64_t begin = 0;  // of the run, in rows of the tensor
  for (const GgufRun& run : tensor_->rows) {
    const int64_t low = std::max(first, begin), high = std::min(first + rows, begin + run.count);
    if (low < high) {
      const std::span<float> part = out.subspan(static_cast<size_t>((low - first) * stored_columns_),
                                                static_cast<size_t>((high - low) * stored_columns_));
      TEMPER_RETURN_IF_ERROR(ReadParts(run.first + low - begin, high - low, part, staging));
      if (run.scale != 1) {
        for (float& x : part) x = static_cast<float>(x * run.scale);
      }
    }
    begin += run.count;
  }
  return OkStatus();
}

Status GgufRowReader::ReadParts(int64_t first, int64_t rows, std::span<float> out, std::span<std::byte> staging) const {
  int64_t begin = 0;  // of the segment, in rows of the parts
  for (const Segment& segment : segments_) {
    const int64_t low = std::max(first, begin), high = std::min(first + rows, begin + segment.rows);
    if (low < high) {
      const std::span<float> part = out.subspan(static_cast<size_t>((low - first) * stored_columns_),
                                                static_cast<size_t>((high - low) * stored_columns_));
      const int64_t in_file = segment.first + low - begin;
      if (segment.matrix >= 0) {
        std::vector<float> whole(static_cast<size_t>(segment.elements));
        TEMPER_RETURN_IF_ERROR(segment.reader->Read(segment.matrix, 1, whole, staging));
        std::copy_n(whole.begin() + in_file * stored_columns_, part.size(), part.begin());
      } else if (segment.turned) {
        std::copy_n(segment.turned->begin() + in_file * stored_columns_, part.size(), part.begin());
      } else {
        TEMPER_RETURN_IF_ERROR(segment.reader->Read(in_file, high - low, part, staging));
      }
    }
    begin += segment.rows;
  }
  return OkStatus();
}

// Rows i and i + rotary / 2 of each head become neighbours. REQUIRES: whole heads.
void GgufRowReader::Reorder(int64_t rows, std::span<std::byte> out) const {
  const auto [head, rotary] = tensor_->order;
  if (head == 0 || rows == 0) return;
  const int64_t bytes = std::ssize(out) / rows;
  std::vector<std::byte> halves(static_cast<size_t>(rotary * bytes));
  for (int64_t row = 0; row < rows; row += head) {
    std::byte* const turned = out.data() + row * bytes;
    std::copy_n(turned, halves.size(), halves.data());
    for (int64_t i = 0; i < rotary; ++i) {
      const int64_t from = i / 2 + (i % 2) * (rotary / 2);
      std::copy_n(halves.data() + from * bytes, bytes, turned + i * bytes);
    }
  }
}

void GgufRowReader::ReorderColumns(std::span<float> out) const {
  if (tensor_->columns.empty()) return;
  std::vector<float> row(static_cast<size_t>(columns_));
  for (size_t at = 0; at < out.size(); at += row.size()) {
    std::copy_n(out.data() + at, row.size(), row.data());
    float* to = out.data() + at;
    for (const GgufRun& run : tensor_->columns) to = std::copy_n(row.data() + run.first, run.count, to);
  }
}

}  // namespace temper
