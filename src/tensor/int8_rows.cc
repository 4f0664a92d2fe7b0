#include "tensor/int8_rows.h"

#include <algorithm>
#include <cmath>

namespace temper {

float Int8Scale(std::span<const float> row) {
  float largest = 0, nan = 0;
  for (const float x : row) {
    largest = std::max(largest, std::fabs(x));
    nan += x * 0;  // stays 0 unless x is not finite; max ignores NaN
  }
  return largest / 127 + nan;
}

void WriteInt8Row(std::span<const float> x, float scale, std::byte* out) {
  constexpr float kRound = 0x1.8p23f;  // adding it leaves no place below 1
  const auto columns = static_cast<int64_t>(x.size());
  for (int64_t i = 0; i < columns; ++i) {
    const float steps = scale > 0 ? x[static_cast<size_t>(i)] / scale : 0;
    const float nearest = (std::clamp(steps, -127.0f, 127.0f) + kRound) - kRound;
    out[i] = static_cast<std::byte>(static_cast<int8_t>(nearest));
  }
  std::memset(out + columns, 0, static_cast<size_t>(Int8ScaleAt(columns) - columns));
  std::memcpy(out + Int8ScaleAt(columns), &scale, sizeof scale);
}

}  // namespace temper
