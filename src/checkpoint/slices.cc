#include "checkpoint/slices.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/function_ref.h"
#include "format/checksum.h"
#include "format/quoted.h"
#include "tensor/tiling.h"

namespace temper {
namespace {

// Reads go in pieces that stay in a core's L2 cache between read, checksum and copy. Whole elements of any dtype.
constexpr int64_t kSlicePiece = 512 << 10;

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
  std::vector<std::byte> staging(static_cast<size_t>(std::min(kSlicePiece, total)));
  Checksum checksum;
  for (int64_t done = 0; done < total;) {
    const auto piece = std::span(staging).first(static_cast<size_t>(std::min(kSlicePiece, total - done)));
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
  std::vector<Box> boxes;
  boxes.reserve(tensor.slices.size());
  for (const SlicedTensor::Slice& s : tensor.slices) boxes.push_back({s.begin, s.shape});
  const std::string fault = FaultOfTiling(tensor.type.shape, boxes, [&](size_t i) {
    const SlicedTensor::Slice& s = tensor.slices[i];
    return fmt::format("the slice {} at {} in {}", s.shape.ToString(), s.begin.ToString(), Quoted(s.file));
  });
  if (fault.empty()) return OkStatus();
  return Corrupt(
      fmt::format("{}, tensor {} of shape {}: {}", where, Quoted(tensor.name), tensor.type.shape.ToString(), fault));
}

Status LoadSlices(const SlicedTensor& tensor, const SliceFiles& files, const Box& part, const PutBytes& put) {
  const DType dtype = tensor.type.dtype;
  for (const SlicedTensor::Slice& s : tensor.slices) {
    if (!Meet({s.begin, s.shape}, part)) continue;
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
