#include "checkpoint/slices.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

#include "base/function_ref.h"
#include "format/checksum.h"
#include "format/quoted.h"

namespace temper {
namespace {

// Reads go in pieces that stay in a core's L2 cache between read, checksum and copy. Whole elements of any dtype.
constexpr int64_t kPiece = 512 << 10;

// More than any cluster has ranks; boxes are compared with each other.
constexpr size_t kMaxSlices = 1 << 14;

// Whether two boxes of one tensor have an element in common.
bool Meet(const Shape& begin_a, const Shape& a, const Shape& begin_b, const Shape& b) {
  for (int d = 0; d < a.rank(); ++d) {
    if (begin_a[d] >= begin_b[d] + b[d] || begin_b[d] >= begin_a[d] + a[d]) return false;
  }
  return a.elements() > 0 && b.elements() > 0;
}

bool Within(const SlicedTensor::Slice& s, const Shape& whole) {
  if (s.begin.rank() != whole.rank() || s.shape.rank() != whole.rank()) return false;
  for (int d = 0; d < whole.rank(); ++d) {
    if (s.begin[d] + s.shape[d] > whole[d]) return false;
  }
  return true;
}

// Of box `from`, row-major, `bytes` are the elements from number `first` on: puts those that `to` has, too. REQUIRES:
// both are of one tensor; `bytes` are whole elements of `size` bytes.
Status PutCommon(const Box& from, int64_t first, std::span<const std::byte> bytes, const Box& to, int64_t size,
                 const PutBytes& put) {
  const Shape &source = from.shape, &target = to.shape;
  const int64_t columns = source.columns();
  const int last = source.rank() - 1;
  const int64_t source_column = last < 0 ? 0 : from.begin[last], target_column = last < 0 ? 0 : to.begin[last];
  // Columns of the whole that both have.
  const int64_t left = std::max(source_column, target_column);
  const int64_t right = std::min(source_column + columns, target_column + target.columns());
  if (left >= right) return OkStatus();
  // A run that both have: where it begins and ends in `bytes`, and where in `to`. Rows that follow each other in both
  // are one.
  int64_t run_begin = 0, run_end = 0, run_at = 0;
  const auto put_run = [&]() -> Status {
    if (run_begin == run_end) return OkStatus();
    return put(run_at, bytes.subspan(static_cast<size_t>(run_begin), static_cast<size_t>(run_end - run_begin)));
  };
  const int64_t end = first + static_cast<int64_t>(bytes.size()) / size;
  for (int64_t at = first; at < end;) {
    const int64_t row = at / columns, row_begin = row * columns, row_end = std::min(row_begin + columns, end);
    // The same row in the target: dims before the last, innermost first.
    bool inside = true;
    int64_t target_row = 0, stride = 1, rest = row;
    for (int d = last - 1; d >= 0; --d) {
      const int64_t index = from.begin[d] + rest % source[d] - to.begin[d];
      inside = inside && index >= 0 && index < target[d];
      target_row += index * stride;
      stride *= target[d];
      rest /= source[d];
    }
    const int64_t a = std::max(left, source_column + at - row_begin);
    const int64_t b = std::min(right, source_column + row_end - row_begin);
    if (inside && a < b) {
      const int64_t next = (row_begin + a - source_column - first) * size;
      const int64_t next_at = (target_row * target.columns() + a - target_column) * size;
      if (next != run_end || next_at != run_at + run_end - run_begin) {
        TEMPER_RETURN_IF_ERROR(put_run());
        run_begin = run_end = next;
        run_at = next_at;
      }
      run_end += (b - a) * size;
    }
    at = row_end;
  }
  return put_run();
}

// take(first, bytes): its elements from number `first` on.
Status ReadSlice(const SafetensorsFile& file, const SlicedTensor::Slice& slice, DType dtype,
                 FunctionRef<Status(int64_t first, std::span<const std::byte> bytes)> take) {
  const int64_t total = TensorType{dtype, slice.shape}.bytes().v;
  std::vector<std::byte> staging(static_cast<size_t>(std::min(kPiece, total)));
  Checksum checksum;
  for (int64_t done = 0; done < total;) {
    const auto piece = std::span(staging).first(static_cast<size_t>(std::min(kPiece, total - done)));
    TEMPER_RETURN_IF_ERROR(file.ReadRange(slice.stored_as, done, piece));
    checksum.Update(piece);
    TEMPER_RETURN_IF_ERROR(take(done / SizeOf(dtype), piece));
    done += std::ssize(piece);
  }
  if (checksum.Hex() == slice.checksum) return OkStatus();
  return ChecksumDiffers(fmt::format("{}: tensor {}", file.path(), Quoted(slice.stored_as)), checksum.Hex(),
                         slice.checksum);
}

}  // namespace

Status ChecksumDiffers(const std::string& what, const std::string& found, const std::string& expected) {
  return Corrupt(fmt::format("{} is damaged: its checksum is {}, its manifest says {}. Use another checkpoint", what,
                             found, expected));
}

Status CheckSlices(const SlicedTensor& tensor, const std::string& where) {
  const Shape& whole = tensor.type.shape;
  const auto wrong = [&](const std::string& what) {
    return Corrupt(fmt::format("{}, tensor {} of shape {}: {}", where, Quoted(tensor.name), whole.ToString(), what));
  };
  const auto text = [](const SlicedTensor::Slice& s) {
    return fmt::format("the slice {} at {} in {}", s.shape.ToString(), s.begin.ToString(), Quoted(s.file));
  };
  if (tensor.slices.empty()) return wrong("it has no slices");
  if (tensor.slices.size() > kMaxSlices) return wrong(fmt::format("it has more than {} slices", kMaxSlices));
  int64_t elements = 0;
  for (const SlicedTensor::Slice& s : tensor.slices) {
    if (!Within(s, whole)) return wrong(text(s) + " is not a part of it");
    if (s.shape.elements() == 0 && tensor.slices.size() > 1) return wrong(text(s) + " is empty");
    elements += s.shape.elements();
  }
  if (elements != whole.elements() || (tensor.slices.size() == 1 && !(tensor.slices[0].shape == whole))) {
    return wrong(fmt::format("its {} slices have {} elements of {}", tensor.slices.size(), elements, whole.elements()));
  }
  if (tensor.slices.size() == 1) return OkStatus();
  std::vector<const SlicedTensor::Slice*> by_row;
  for (const SlicedTensor::Slice& s : tensor.slices) by_row.push_back(&s);
  const auto first = [](const SlicedTensor::Slice* s) { return s->begin.rank() == 0 ? 0 : s->begin[0]; };
  std::sort(by_row.begin(), by_row.end(), [&](auto* a, auto* b) { return first(a) < first(b); });
  for (size_t i = 0; i < by_row.size(); ++i) {
    const int64_t end = first(by_row[i]) + (whole.rank() == 0 ? 1 : by_row[i]->shape[0]);
    for (size_t j = i + 1; j < by_row.size() && first(by_row[j]) < end; ++j) {
      if (!Meet(by_row[i]->begin, by_row[i]->shape, by_row[j]->begin, by_row[j]->shape)) continue;
      return wrong(fmt::format("{} overlaps {}", text(*by_row[i]), text(*by_row[j])));
    }
  }
  return OkStatus();
}

Status LoadSlices(const SlicedTensor& tensor, const SliceFiles& files, const Box& part, const PutBytes& put) {
  const DType dtype = tensor.type.dtype;
  for (const SlicedTensor::Slice& s : tensor.slices) {
    if (!Meet(s.begin, s.shape, part.begin, part.shape)) continue;
    TEMPER_RETURN_IF_ERROR(ReadSlice(files(s.file), s, dtype, [&](int64_t first, std::span<const std::byte> bytes) {
      return PutCommon({s.begin, s.shape}, first, bytes, part, SizeOf(dtype), put);
    }));
  }
  return OkStatus();
}

Status LoadSlices(const SlicedTensor& tensor, const SliceFiles& files, const PartView& part) {
  return LoadSlices(tensor, files, {part.begin, part.view.type.shape},
                    [&](int64_t at, std::span<const std::byte> bytes) {
                      std::memcpy(part.view.data + at, bytes.data(), bytes.size());
                      return OkStatus();
                    });
}

Status VerifySlices(const SlicedTensor& tensor, const SliceFiles& files) {
  for (const SlicedTensor::Slice& s : tensor.slices) {
    TEMPER_RETURN_IF_ERROR(
        ReadSlice(files(s.file), s, tensor.type.dtype, [](int64_t, std::span<const std::byte>) { return OkStatus(); }));
  }
  return OkStatus();
}

}  // namespace temper
