// Which element of a matrix unit's operand a lane holds, as Triton compiles it, and matrices to multiply.
#pragma once

#include <array>
#include <cstddef>
#include <random>
#include <vector>

namespace temper::gpu {

using Place = std::array<int, 2>;  // row, column

// Where the bits of an element's and of a lane's number put it, as tests/conformance/matrix_layouts.py writes it.
struct Layout {
  std::vector<Place> element_bits, lane_bits;

  Place Of(int lane, int element) const {
    Place place = {0, 0};
    const auto add = [&](const std::vector<Place>& bits, int number) {
      for (size_t i = 0; i < bits.size(); ++i) {
        for (size_t d = 0; d < 2 && (number >> i) % 2 == 1; ++d) place[d] += bits[i][d];
      }
    };
    add(element_bits, element);
    add(lane_bits, lane);
    return place;
  }
};
// Small whole numbers: their products and sums are exact, in whatever order.
using Matrix = std::vector<std::vector<float>>;
inline Matrix RandomMatrix(size_t rows, size_t columns, unsigned seed) {
  std::mt19937 random(seed);
  Matrix x(rows, std::vector<float>(columns));
  for (auto& row : x) {
    for (float& value : row) value = static_cast<float>(random() % 17) - 8;
  }
  return x;
}
inline float At(const Matrix& x, Place place) {
  return x[static_cast<size_t>(place[0])][static_cast<size_t>(place[1])];
}
}  // namespace temper::gpu
