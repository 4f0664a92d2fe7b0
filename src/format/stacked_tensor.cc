#include "format/stacked_tensor.h"

#include <algorithm>

#include "base/check.h"

namespace temper {

StackedTensor::StackedTensor(const std::string& name, std::vector<int64_t> dims,
                             std::vector<const QuantisedTensor*> pieces)
    : QuantisedTensor(pieces.front()->format()), pieces_(std::move(pieces)), first_rows_{0} {
  whole_ = {.name = name, .dtype = pieces_.front()->whole().dtype, .dims = std::move(dims)};
  for (const QuantisedTensor* piece : pieces_) {
    const StoredTensor& matrix = piece->whole();
    TEMPER_CHECK(piece->format() == format_ && matrix.dtype == whole_.dtype && !piece->transposed() &&
                 matrix.dims.size() == 2 && matrix.dims[1] == whole_.dims[2])
        << matrix.ToString();
    whole_.end += matrix.bytes().v;
    first_rows_.push_back(first_rows_.back() + matrix.dims[0]);
    parts_.insert(parts_.end(), piece->parts().begin(), piece->parts().end());
  }
  TEMPER_CHECK(first_rows_.back() == whole_.dims[0] * whole_.dims[1]) << whole_.ToString();
}

Bytes StackedTensor::bytes() const {
  Bytes sum;
  for (const QuantisedTensor* piece : pieces_) sum += piece->bytes();
  return sum;
}

template <class Fn>
Status StackedTensor::ForPieces(int64_t first, int64_t count, const Fn& fn) const {
  auto piece =
      static_cast<size_t>(std::upper_bound(first_rows_.begin(), first_rows_.end(), first) - first_rows_.begin()) - 1;
  for (const int64_t end = first + count; first < end; ++piece) {
    const int64_t n = std::min(end, first_rows_[piece + 1]) - first;
    TEMPER_RETURN_IF_ERROR(fn(piece, first - first_rows_[piece], n));
    first += n;
  }
  return OkStatus();
}

Status StackedTensor::ReadElementsAs(int64_t first, DType target, std::span<std::byte> out) const {
  const int64_t columns = whole_.dims[2], size = SizeOf(target), end = first + std::ssize(out) / size;
  const int64_t first_row = first / columns, last_row = (end + columns - 1) / columns;
  return ForPieces(first_row, last_row - first_row, [&](size_t piece, int64_t row, int64_t rows) {
    const int64_t at = first_rows_[piece] * columns;  // of the stack, where the piece begins
    const int64_t from = std::max(first, at + row * columns), to = std::min(end, at + (row + rows) * columns);
    return pieces_[piece]->ReadElementsAs(
        from - at, target,
        out.subspan(static_cast<size_t>((from - first) * size), static_cast<size_t>((to - from) * size)));
  });
}

// Keeps the reader of the last piece.
class StackedTensor::Reader : public QuantisedTensor::Rows {
 public:
  explicit Reader(const StackedTensor& tensor) : t_(tensor) {}

  Status Read(int64_t first, int64_t count, int64_t begin, int64_t columns, std::byte* out) override {
    return t_.ForPieces(first, count, [&](size_t piece, int64_t row, int64_t rows) {
      if (rows_ == nullptr || piece != piece_) {
        rows_ = t_.pieces_[piece]->OpenRows();
        piece_ = piece;
      }
      std::byte* const to = out;
      out += rows * t_.format_.RowBytes(columns);
      return rows_->Read(row, rows, begin, columns, to);
    });
  }

 private:
  const StackedTensor& t_;
  size_t piece_ = 0;
  std::unique_ptr<Rows> rows_;
};

std::unique_ptr<QuantisedTensor::Rows> StackedTensor::OpenRows() const {
  return std::make_unique<Reader>(*this);
}

}  // namespace temper
