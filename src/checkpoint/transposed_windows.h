// Windows of a transposed matrix: memory holds some matrices out x in that files hold in x out (GPT-2's, and gpt-oss'
// stacks of them). On its way from one to the other such a matrix passes, some rows of the file at a time, through
// memory that does not grow with it. A stack passes matrix by matrix.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/units.h"
#include "checkpoint/slices.h"
#include "device/device_part.h"
#include "tensor/view.h"

namespace temper {

// Of a window whose other side is the host's memory, where each row gets short runs: it stays in the cache.
inline constexpr Bytes kNearWindow = MiB(1);
// Where the other side may be a device: each of its rows is one copy per window. The largest such matrix that is
// published, 1600 x 6400 in f32, is 39.1 MiB. Two windows are in memory at a time, within what a plan leaves beside
// arenas (compile/memory/machine_room.cc).
inline constexpr Bytes kFarWindow = MiB(40);

// Fills `part`, in the host's memory, of the transpose of a stored matrix. `read` fills rows of the stored one. A
// window has `window` bytes, or one row if that is more.
Status FillTransposed(const PartView& part, const std::function<Status(const PartView& rows)>& read,
                      Bytes window = kNearWindow);

// Gives `take` the rows of the transpose of `parts`, which are rows of one matrix that follow each other: their
// columns, side by side. Stacks are parts of one that follow each other: `take` gets the transpose of each matrix.
Status ReadTransposed(std::span<const DevicePart> parts, const std::function<Status(std::span<const std::byte>)>& take,
                      Bytes window = kFarWindow);

// Turns runs of a stored matrix, as LoadSlices gives them, into runs of its transpose.
class TransposedPut {
 public:
  // `shape`: of the transpose. `size`: bytes of an element. `put` takes runs of the transpose.
  TransposedPut(const Shape& shape, int64_t size, const PutBytes& put, Bytes window = kFarWindow);

  // As PutBytes, of the stored matrix or stack.
  Status Put(int64_t at, std::span<const std::byte> bytes);
  // Puts the rest.
  Status Flush();

 private:
  // Adds n elements of a row, which go on where the gathered ones end, or after these were put.
  Status Gather(int64_t row, int64_t column, int64_t n, const std::byte* from);

  const int64_t outs_, ins_, size_;
  int64_t matrix_ = 0;  // of a stack: the one that gathers
  const PutBytes& put_;
  const int64_t window_;  // bytes
  // What has gathered: rows [first_, first_ + rows_) of the stored matrix, columns [column_, column_ + width_), and the
  // first `begun_` of these of the next row.
  std::vector<std::byte> gathered_, turned_;
  int64_t first_ = 0, rows_ = 0, column_ = 0, width_ = 0, begun_ = 0;
};

}  // namespace temper
