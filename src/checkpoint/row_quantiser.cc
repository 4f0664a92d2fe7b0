#include "checkpoint/row_quantiser.h"

#include <fmt/core.h>

#include <algorithm>

namespace temper {
namespace {

Status NotFinite(const ModelWeights::Entry& entry, int64_t row, ElementFormat format) {
  return Corrupt(
      fmt::format("{}: tensor {} has an element that is not finite in row {}, which {} cannot hold: get the model "
                  "again, or remove base_dtype or embedding_dtype",
                  entry.file->path(), entry.tensor->name, row, ToString(format)));
}

}  // namespace

Status RowQuantiser::Fill(const ModelWeights::Entry& entry, bool transposed, const PartView& piece, const Read& read) {
  // Of a transposed tensor each window takes a short read for every row of the file: it is 32 MiB then, half of
  // gpt-oss' largest matrix.
  window_ = transposed ? 8 << 20 : 1 << 18;
  const ElementFormat format = piece.view.type.dtype;
  const Shape& shape = piece.view.type.shape;
  if (entry.quantised != nullptr && entry.quantised->format() == format) {
    TEMPER_CHECK(entry.quantised->transposed() == transposed) << entry.tensor->name << " is stored otherwise";
    return FillStored(entry, piece);
  }
  matrix_ = 0;
  if (shape.rank() == 2) return FillMatrix(entry, piece, read);
  TEMPER_CHECK(shape.rank() == 3) << piece.view.type.ToString();
  const int64_t bytes = shape[1] * format.RowBytes(shape[2]);
  for (int64_t m = 0; m < shape[0]; ++m) {
    matrix_ = piece.begin[0] + m;
    const PartView matrix(View{piece.view.data + m * bytes, {format, {shape[1], shape[2]}}},
                          {piece.global[1], piece.global[2]}, {piece.begin[1], piece.begin[2]});
    TEMPER_RETURN_IF_ERROR(FillMatrix(entry, matrix, [&](const PartView& rows) {
      const View& view = rows.view;
      return read(PartView(View{view.data, {view.type.dtype, {1, view.type.shape[0], view.type.shape[1]}}},
                           piece.global, {matrix_, rows.begin[0], rows.begin[1]}));
    }));
  }
  return OkStatus();
}

Status RowQuantiser::FillStored(const ModelWeights::Entry& entry, const PartView& piece) {
  if (tensor_ != entry.tensor || stored_ == nullptr) {
    stored_ = entry.quantised->OpenRows();
    maker_ = nullptr;
    tensor_ = entry.tensor;
  }
  const Shape &shape = piece.view.type.shape, &begin = piece.begin;
  const bool stack = shape.rank() == 3;
  const int64_t matrices = stack ? shape[0] : 1, rows = shape[stack], columns = shape[stack + 1];
  std::byte* out = piece.view.data;
  for (int64_t m = 0; m < matrices; ++m) {
    const int64_t first = (stack ? (begin[0] + m) * piece.global[1] : 0) + begin[stack];
    TEMPER_RETURN_IF_ERROR(stored_->Read(first, rows, begin[stack + 1], columns, out));
    out += rows * piece.view.type.dtype.RowBytes(columns);
  }
  return OkStatus();
}

Status RowQuantiser::ForRows(const Shape& tensor, int64_t begin, int64_t end, int64_t column, int64_t columns,
                             const Read& read, const Row& row) {
  const int64_t at_once = std::max<int64_t>(1, window_ / std::max<int64_t>(columns, 1));
  for (int64_t first = begin; first < end; first += at_once) {
    const int64_t n = std::min(at_once, end - first);
    numbers_.resize(std::max(numbers_.size(), static_cast<size_t>(n * columns)));
    const View view{reinterpret_cast<std::byte*>(numbers_.data()), {DType::kF32, {n, columns}}};
    TEMPER_RETURN_IF_ERROR(read(PartView(view, tensor, {first, column})));
    for (int64_t r = 0; r < n; ++r) {
      const auto x = std::span(numbers_).subspan(static_cast<size_t>(r * columns), static_cast<size_t>(columns));
      TEMPER_RETURN_IF_ERROR(row(first + r, x));
    }
  }
  return OkStatus();
}

Status RowQuantiser::FillMatrix(const ModelWeights::Entry& entry, const PartView& piece, const Read& read) {
  const ElementFormat format = piece.view.type.dtype;
  const FormatRule& rule = RuleOf(format);
  const Shape& whole = piece.global;
  TEMPER_CHECK(rule.maker != nullptr) << entry.tensor->name << " is not stored as " << ToString(format);
  if (maker_ == nullptr || tensor_ != entry.tensor || of_matrix_ != matrix_ || of_format_ != format) {
    tensor_ = nullptr;
    stored_ = nullptr;
    maker_ = rule.maker(whole.rows(), whole.columns());
    of_matrix_ = matrix_;
    of_format_ = format;
    if (rule.looks) {
      TEMPER_RETURN_IF_ERROR(
          ForRows(whole, 0, whole.rows(), 0, whole.columns(), read, [&](int64_t row, std::span<const float> x) {
            return maker_->Look(row, x) ? OkStatus() : NotFinite(entry, row, format);
          }));
    }
    tensor_ = entry.tensor;
  }
  const int64_t columns = piece.columns(), first = piece.begin[0], begin = piece.begin[1];
  std::byte* out = piece.view.data;
  return ForRows(whole, first, first + piece.rows(), rule.makes_parts ? begin : 0,
                 rule.makes_parts ? columns : whole.columns(), read, [&](int64_t row, std::span<const float> x) {
                   if (!maker_->Write(row, x, begin, columns, out)) return NotFinite(entry, row, format);
                   out += format.RowBytes(columns);
                   return OkStatus();
                 });
}

}  // namespace temper
