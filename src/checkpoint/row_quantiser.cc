#include "checkpoint/row_quantiser.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "format/mxfp4_tensor.h"
#include "tensor/int8_rows.h"
#include "tensor/mxfp4_rows.h"

namespace temper {
namespace {

Status NotFinite(const ModelWeights::Entry& entry, int64_t row, ElementFormat format) {
  return Corrupt(
      fmt::format("{}: tensor {} has an element that is not finite in row {}, which {} cannot hold: get the model "
                  "again, or remove base_dtype or embedding_dtype",
                  entry.file->path(), entry.tensor->name, row, ToString(format)));
}

// Infinite or NaN if one of them is. Magnitudes are ordered as the integers that their bits are.
float Absmax(std::span<const float> x) {
  uint32_t largest = 0;
  for (const float v : x) largest = std::max(largest, std::bit_cast<uint32_t>(v) & 0x7FFF'FFFFu);
  return std::bit_cast<float>(largest);
}

// Calls fn(block, elements) for each run of `x`, whose first one is element `at` of a tensor, in one block of NF4.
template <class Fn>
void ForBlocks(std::span<const float> x, int64_t at, const Fn& fn) {
  while (!x.empty()) {
    const auto n = std::min(x.size(), static_cast<size_t>(kNf4Block - at % kNf4Block));
    fn(static_cast<size_t>(at / kNf4Block), x.first(n));
    x = x.subspan(n);
    at += static_cast<int64_t>(n);
  }
}

}  // namespace

Status RowQuantiser::Fill(const ModelWeights::Entry& entry, bool transposed, const PartView& piece, const Read& read) {
  // Of a transposed tensor each window takes a short read for every row of the file: it is 32 MiB then, half of
  // gpt-oss' largest matrix.
  window_ = transposed ? 8 << 20 : 1 << 18;
  const ElementFormat format = piece.view.type.dtype;
  const Shape& shape = piece.view.type.shape;
  if (format == ElementFormat::Mxfp4()) return FillMxfp4(entry, piece);
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

Status RowQuantiser::FillMatrix(const ModelWeights::Entry& entry, const PartView& piece, const Read& read) {
  return piece.view.type.dtype == ElementFormat::Nf4() ? FillNf4(entry, piece, read) : FillInt8(entry, piece, read);
}

// Rows of [matrices, out, in], which is the transpose of each matrix of `entry`.
Status RowQuantiser::FillMxfp4(const ModelWeights::Entry& entry, const PartView& piece) {
  constexpr int64_t kWindow = 1 << 20;  // bytes
  const auto stored = Mxfp4Tensor::Of(entry);
  const Shape& shape = piece.view.type.shape;
  TEMPER_CHECK(stored.has_value() && shape.rank() == 3) << entry.tensor->name << " as " << piece.view.type.ToString();
  const auto pairs = static_cast<size_t>(piece.global[2] / 2),  // of a row
      scales = static_cast<size_t>(piece.global[2] / kMxfp4Block);
  const int64_t columns = shape[2], at_once = std::max<int64_t>(1, kWindow / static_cast<int64_t>(pairs));
  pairs_.resize(static_cast<size_t>(at_once) * pairs);
  scales_.resize(static_cast<size_t>(at_once) * scales);
  std::byte* out = piece.view.data;
  for (int64_t m = 0; m < shape[0]; ++m) {
    const int64_t begin = (piece.begin[0] + m) * piece.global[1] + piece.begin[1];
    for (int64_t row = 0; row < shape[1]; row += at_once) {
      const auto n = static_cast<size_t>(std::min(at_once, shape[1] - row));
      TEMPER_RETURN_IF_ERROR(
          stored->ReadRows(begin + row, std::span(pairs_).first(n * pairs), std::span(scales_).first(n * scales)));
      for (size_t r = 0; r < n; ++r) {
        WriteMxfp4Row(std::span(pairs_).subspan(r * pairs, pairs), std::span(scales_).subspan(r * scales, scales),
                      piece.begin[2], columns, out);
        out += Mxfp4RowBytes(columns);
      }
    }
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

Status RowQuantiser::FillInt8(const ModelWeights::Entry& entry, const PartView& piece, const Read& read) {
  const int64_t kept = piece.columns(), first = piece.begin[0];
  std::byte* out = piece.view.data;
  return ForRows(piece.global, first, first + piece.rows(), 0, piece.global.columns(), read,
                 [&](int64_t row, std::span<const float> x) {
                   const float scale = Int8Scale(x);
                   if (!std::isfinite(scale)) return NotFinite(entry, row, ElementFormat::Int8Rows());
                   WriteInt8Row(x.subspan(static_cast<size_t>(piece.begin[1]), static_cast<size_t>(kept)), scale, out);
                   out += Int8RowBytes(kept);
                   return OkStatus();
                 });
}

Status RowQuantiser::FillNf4(const ModelWeights::Entry& entry, const PartView& piece, const Read& read) {
  if (tensor_ != entry.tensor || of_matrix_ != matrix_) TEMPER_RETURN_IF_ERROR(FindAbsmaxes(entry, piece.global, read));
  const int64_t columns = piece.columns(), first = piece.begin[0];
  if (entry.nf4 != nullptr) {
    std::vector<uint8_t> indices(static_cast<size_t>(columns));
    for (int64_t r = 0; r < piece.rows(); ++r) {
      const int64_t at = (first + r) * piece.global.columns() + piece.begin[1];
      TEMPER_RETURN_IF_ERROR(entry.nf4->ReadIndices(at, indices));
      WriteNf4Row(indices, at, absmaxes_, piece.view.data + r * Nf4RowBytes(columns));
    }
    return OkStatus();
  }
  const auto whole_blocks = static_cast<size_t>(piece.global.elements() / kNf4Block);
  std::vector<uint8_t> indices(static_cast<size_t>(columns));
  std::byte* out = piece.view.data;
  return ForRows(piece.global, first, first + piece.rows(), piece.begin[1], columns, read,
                 [&](int64_t row, std::span<const float> x) {
                   const int64_t at = row * piece.global.columns() + piece.begin[1];
                   uint8_t* to = indices.data();
                   ForBlocks(x, at, [&](size_t block, std::span<const float> of_block) {
                     Nf4Indices(of_block, absmax_[block], block < whole_blocks, to);
                     to += of_block.size();
                   });
                   WriteNf4Row(indices, at, absmaxes_, out);
                   out += Nf4RowBytes(columns);
                   return OkStatus();
                 });
}

Status RowQuantiser::FindAbsmaxes(const ModelWeights::Entry& entry, const Shape& shape, const Read& read) {
  tensor_ = nullptr;
  of_matrix_ = matrix_;
  if (entry.nf4 != nullptr) {
    TEMPER_ASSIGN_OR_RETURN(absmaxes_, entry.nf4->ReadAbsmaxes());
    tensor_ = entry.tensor;
    return OkStatus();
  }
  absmax_.assign(static_cast<size_t>((shape.elements() + kNf4Block - 1) / kNf4Block), 0);
  const auto add = [&](int64_t row, std::span<const float> x) {
    bool finite = true;
    ForBlocks(x, row * shape.columns(), [&](size_t block, std::span<const float> of_block) {
      const float absmax = Absmax(of_block);
      finite = finite && std::isfinite(absmax);
      absmax_[block] = std::max(absmax_[block], absmax);
    });
    return finite ? OkStatus() : NotFinite(entry, row, ElementFormat::Nf4());
  };
  TEMPER_RETURN_IF_ERROR(ForRows(shape, 0, shape.rows(), 0, shape.columns(), read, add));
  absmaxes_ = QuantiseAbsmaxes(absmax_);
  tensor_ = entry.tensor;
  return OkStatus();
}

}  // namespace temper
