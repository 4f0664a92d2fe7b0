// Reading a tensor whose elements a file holds in another order than row-major: a transposed view, or columns of a
// wider matrix, as torch.save keeps them.
#pragma once

#include <cstdint>
#include <span>

#include "base/env.h"

namespace temper {

struct StridedPlace {
  int64_t begin = 0;                       // of element 0, bytes from the file's start
  int64_t element_size = 0;                // 1, 2, 4 or 8 bytes
  std::span<const int64_t> dims, strides;  // strides in elements, not negative
};

// Elements [first, first + out.size() / element_size) in row-major order. Reads some 64 KiB at a time, at most that
// much beside what is wanted for each line of elements that lie near each other. REQUIRES: the tensor has these
// elements, and they lie in the file.
Status ReadStrided(const RandomAccessFile& file, const StridedPlace& place, int64_t first, std::span<std::byte> out);

}  // namespace temper
