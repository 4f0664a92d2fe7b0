#include "tensor/int8_rows.h"

#include <algorithm>
#include <cmath>

#include "tensor/format_rule.h"

namespace temper {
namespace {

FormatRun Int8Run(const std::byte* row, int64_t columns, int64_t begin, int64_t end) {
  return {.elements = row + begin, .count = end - begin, .scale = ReadScale(row + Int8ScaleAt(columns))};
}

void Int8Numbers(const std::byte* row, int64_t columns, int64_t begin, int64_t end, bf16* out) {
  const float scale = ReadScale(row + Int8ScaleAt(columns));
  for (int64_t c = begin; c < end; ++c) *out++ = FromInt8(static_cast<int8_t>(row[c]), scale);
}

class Int8Maker : public RowMaker {
  bool Write(int64_t /*row*/, std::span<const float> x, int64_t begin, int64_t columns, std::byte* out) override {
    const float scale = Int8Scale(x);
    if (!std::isfinite(scale)) return false;
    WriteInt8Row(x.subspan(static_cast<size_t>(begin), static_cast<size_t>(columns)), scale, out);
    return true;
  }
};

}  // namespace

extern const FormatRule kInt8Format = {
    .name = "int8",
    .title = "int8",
    .row_bytes = Int8RowBytes,
    .run = Int8Run,
    .numbers = Int8Numbers,
    .maker = [](int64_t, int64_t) -> std::unique_ptr<RowMaker> { return std::make_unique<Int8Maker>(); },
    .of_embeddings = true,
    .on_gpus = true};

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
