#include "format/transpose.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace temper::transpose_test {
namespace {

template <class T>
void ExpectTransposed(int64_t rows, int64_t columns) {
  const int64_t from_stride = columns + 3, to_stride = rows + 2;
  std::vector<T> from(static_cast<size_t>(rows * from_stride)), to(static_cast<size_t>(columns * to_stride), T{7});
  std::iota(from.begin(), from.end(), T{100});
  Transpose(reinterpret_cast<const std::byte*>(from.data()), rows, columns, from_stride,
            reinterpret_cast<std::byte*>(to.data()), to_stride, sizeof(T));
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = 0; r < to_stride; ++r) {
      const T expected = r < rows ? from[static_cast<size_t>(r * from_stride + c)] : T{7};
      ASSERT_EQ(to[static_cast<size_t>(c * to_stride + r)], expected) << r << ", " << c;
    }
  }
}

TEST(Transpose, EveryElementLandsInItsPlaceAndNoOtherIsTouched) {
  for (const auto& [rows, columns] : {std::pair{1, 1}, {1, 70}, {70, 1}, {32, 64}, {33, 95}}) {
    ExpectTransposed<uint16_t>(rows, columns);
    ExpectTransposed<uint32_t>(rows, columns);
  }
}

}  // namespace
}  // namespace temper::transpose_test
