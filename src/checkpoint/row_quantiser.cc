#include "checkpoint/row_quantiser.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "tensor/int8_rows.h"

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

Status RowQuantiser::Fill(const ModelWeights::Entry& entry, const PartView& piece, const Read& read) {
  return piece.view.type.dtype == ElementFormat::Nf4() ? FillNf4(entry, piece, read) : FillInt8(entry, piece, read);
}

Status RowQuantiser::ForRows(const Shape& tensor, int64_t begin, int64_t end, int64_t column, int64_t columns,
                             const Read& read, const Row& row) {
  constexpr int64_t kWindow = 1 << 18;  // elements
  const int64_t at_once = std::max<int64_t>(1, kWindow / std::max<int64_t>(columns, 1));
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
  if (tensor_ != entry.tensor) TEMPER_RETURN_IF_ERROR(FindAbsmaxes(entry, piece.global, read));
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
