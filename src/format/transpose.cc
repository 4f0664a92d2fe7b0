#include "format/transpose.h"

#include <algorithm>

#include "base/check.h"

namespace temper {
namespace {

// Rows and columns of a block whose lines, of both matrices, stay in a core's L1 cache.
constexpr int64_t kBlock = 32;

template <class T>
void TransposeAs(const T* from, int64_t rows, int64_t columns, int64_t from_stride, T* to, int64_t to_stride) {
  for (int64_t r0 = 0; r0 < rows; r0 += kBlock) {
    const int64_t r1 = std::min(r0 + kBlock, rows);
    for (int64_t c0 = 0; c0 < columns; c0 += kBlock) {
      const int64_t c1 = std::min(c0 + kBlock, columns);
      for (int64_t c = c0; c < c1; ++c) {
        for (int64_t r = r0; r < r1; ++r) to[c * to_stride + r] = from[r * from_stride + c];
      }
    }
  }
}

}  // namespace

void Transpose(const std::byte* from, int64_t rows, int64_t columns, int64_t from_stride, std::byte* to,
               int64_t to_stride, int64_t size) {
  const auto as = [&]<class T>(T /*of that size*/) {
    TransposeAs(reinterpret_cast<const T*>(from), rows, columns, from_stride, reinterpret_cast<T*>(to), to_stride);
  };
  if (size == 4) return as(uint32_t());
  TEMPER_CHECK(size == 2) << "elements of " << size << " bytes";
  as(uint16_t());
}

}  // namespace temper
