#include "checkpoint/transposed_windows.h"

#include <algorithm>
#include <cstring>

#include "format/transpose.h"

namespace temper {
namespace {

// Rows of `row_bytes` that a window holds.
int64_t RowsOf(int64_t window, int64_t row_bytes, int64_t rows) {
  return std::clamp<int64_t>(window / row_bytes, 1, rows);
}

// Copies columns [first, first + n) of a part that is not on the host.
Status CopyColumns(const DevicePart& from, int64_t first, int64_t n, std::vector<std::byte>* to) {
  const View& view = from.part.view;
  const int64_t rows = view.type.shape[0], columns = view.type.shape[1], size = SizeOf(view.type.dtype);
  to->resize(static_cast<size_t>(rows * n * size));
  const int64_t runs = n == columns ? 1 : rows, run = rows * n * size / runs;  // bytes
  for (int64_t r = 0; r < runs; ++r) {
    const auto place = std::span(*to).subspan(static_cast<size_t>(r * run), static_cast<size_t>(run));
    TEMPER_RETURN_IF_ERROR(from.stream->CopyToHost(view.data + (r * columns + first) * size, place));
  }
  return from.stream->Synchronize();
}

// One matrix of a part of a stack.
View MatrixOf(const View& stack, int64_t matrix) {
  const int64_t rows = stack.type.shape[1], columns = stack.type.shape[2], size = SizeOf(stack.type.dtype);
  return {stack.data + matrix * rows * columns * size, {stack.type.dtype, {rows, columns}}};
}

}  // namespace

Status FillTransposed(const PartView& part, const std::function<Status(const PartView& rows)>& read, Bytes window) {
  const View& view = part.view;
  if (view.type.shape.rank() == 3) {
    for (int64_t i = 0; i < view.type.shape[0]; ++i) {
      const PartView matrix(MatrixOf(view, i), {part.global[1], part.global[2]}, {part.begin[1], part.begin[2]});
      const auto read_matrix = [&](const PartView& rows) {
        const Shape &shape = rows.view.type.shape, &global = rows.global, &begin = rows.begin;
        return read(PartView({rows.view.data, {rows.view.type.dtype, {1, shape[0], shape[1]}}},
                             {part.global[0], global[0], global[1]}, {part.begin[0] + i, begin[0], begin[1]}));
      };
      TEMPER_RETURN_IF_ERROR(FillTransposed(matrix, read_matrix, window));
    }
    return OkStatus();
  }
  const int64_t outs = view.type.shape[0], ins = view.type.shape[1], size = SizeOf(view.type.dtype);
  if (outs == 0 || ins == 0) return OkStatus();
  const int64_t at_once = RowsOf(window.v, outs * size, ins);
  std::vector<std::byte> memory(static_cast<size_t>(at_once * outs * size));
  for (int64_t first = 0; first < ins; first += at_once) {
    const int64_t n = std::min(at_once, ins - first);
    TEMPER_RETURN_IF_ERROR(read(PartView({memory.data(), {view.type.dtype, {n, outs}}}, Transposed(part.global),
                                         {part.begin[1] + first, part.begin[0]})));
    Transpose(memory.data(), n, outs, outs, view.data + first * size, ins, size);
  }
  return OkStatus();
}

Status ReadTransposed(std::span<const DevicePart> parts, const std::function<Status(std::span<const std::byte>)>& take,
                      Bytes window) {
  const TensorType& type = parts.front().part.view.type;
  if (type.shape.rank() == 3) {
    for (const DevicePart& part : parts) {
      for (int64_t i = 0; i < part.part.view.type.shape[0]; ++i) {
        const DevicePart matrix(PartView(MatrixOf(part.part.view, i)), *part.stream);
        TEMPER_RETURN_IF_ERROR(ReadTransposed({&matrix, 1}, take, window));
      }
    }
    return OkStatus();
  }
  const int64_t size = SizeOf(type.dtype), ins = type.shape[1];
  int64_t outs = 0;
  for (const DevicePart& part : parts) outs += part.part.view.type.shape[0];
  if (outs == 0 || ins == 0) return OkStatus();
  const int64_t at_once = RowsOf(window.v, outs * size, ins);
  std::vector<std::byte> rows(static_cast<size_t>(at_once * outs * size)), columns;
  for (int64_t first = 0; first < ins; first += at_once) {
    const int64_t n = std::min(at_once, ins - first);
    std::byte* to = rows.data();
    for (const DevicePart& part : parts) {
      const View& view = part.part.view;
      const int64_t of_part = view.type.shape[0];
      if (part.on_host()) {
        Transpose(view.data + first * size, of_part, n, ins, to, outs, size);
      } else {
        TEMPER_RETURN_IF_ERROR(CopyColumns(part, first, n, &columns));
        Transpose(columns.data(), of_part, n, n, to, outs, size);
      }
      to += of_part * size;
    }
    TEMPER_RETURN_IF_ERROR(take(std::span(rows).first(static_cast<size_t>(n * outs * size))));
  }
  return OkStatus();
}

TransposedPut::TransposedPut(const Shape& shape, int64_t size, const PutBytes& put, Bytes window)
    : outs_(shape[shape.rank() - 2]), ins_(shape[shape.rank() - 1]), size_(size), put_(put), window_(window.v) {}

Status TransposedPut::Put(int64_t at, std::span<const std::byte> bytes) {
  int64_t element = at / size_, left = std::ssize(bytes) / size_;
  const std::byte* from = bytes.data();
  while (left > 0) {
    const int64_t n = std::min(outs_ - element % outs_, left);  // of one row
    if (const int64_t matrix = element / (outs_ * ins_); matrix != matrix_) {
      TEMPER_RETURN_IF_ERROR(Flush());
      matrix_ = matrix;
    }
    TEMPER_RETURN_IF_ERROR(Gather(element / outs_ % ins_, element % outs_, n, from));
    element += n;
    from += n * size_;
    left -= n;
  }
  return OkStatus();
}

Status TransposedPut::Gather(int64_t row, int64_t column, int64_t n, const std::byte* from) {
  const bool full = begun_ == 0 && rows_ >= RowsOf(window_, std::max<int64_t>(width_, 1) * size_, ins_);
  const bool widens = rows_ == 1 && begun_ == 0 && row == first_ && column == column_ + width_;
  const bool goes_on =
      rows_ > 0 && row == first_ + rows_ && column == column_ + begun_ && begun_ + n <= width_ && !full;
  if (!widens && !goes_on) {
    TEMPER_RETURN_IF_ERROR(Flush());
    first_ = row;
    column_ = column;
  }
  if (gathered_.empty())
    gathered_.reserve(static_cast<size_t>(std::min(std::max(window_, outs_ * size_), outs_ * ins_ * size_)));
  gathered_.insert(gathered_.end(), from, from + n * size_);
  if (goes_on) {
    begun_ += n;
    if (begun_ < width_) return OkStatus();
    begun_ = 0;
    ++rows_;
  } else {
    width_ += n;
    rows_ = 1;
  }
  return OkStatus();
}

Status TransposedPut::Flush() {
  const int64_t matrix = matrix_ * outs_ * ins_;  // its first element
  const int64_t whole = rows_ * width_;
  turned_.resize(static_cast<size_t>(whole * size_));
  if (rows_ > 0) Transpose(gathered_.data(), rows_, width_, width_, turned_.data(), rows_, size_);
  const int64_t lines = rows_ == 0 ? 0 : rows_ == ins_ ? 1 : width_;
  for (int64_t i = 0; i < lines; ++i) {
    const int64_t line = whole * size_ / lines;  // bytes
    const auto run = std::span(turned_).subspan(static_cast<size_t>(i * line), static_cast<size_t>(line));
    TEMPER_RETURN_IF_ERROR(put_((matrix + (column_ + i) * ins_ + first_) * size_, run));
  }
  for (int64_t i = 0; i < begun_; ++i) {  // of a row that did not go on
    const auto number =
        std::span(gathered_).subspan(static_cast<size_t>((whole + i) * size_), static_cast<size_t>(size_));
    TEMPER_RETURN_IF_ERROR(put_((matrix + (column_ + i) * ins_ + first_ + rows_) * size_, number));
  }
  gathered_.clear();
  rows_ = width_ = begun_ = 0;
  return OkStatus();
}

}  // namespace temper
