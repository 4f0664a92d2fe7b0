#include "tensor/nf4_rows.h"

#include <cmath>

#include "base/check.h"

namespace temper {
namespace {

// The index of an absmax that is `x` times its group's scale, -1 <= x <= 1. As bitsandbytes does it on processors: x
// goes to the nearest of 65,536 steps, that to the nearest number.
uint8_t AbsmaxIndex(float x) {
  constexpr float kSteps = 65535;
  const auto step = static_cast<int>((x + 1) * 0.5f * kSteps + 0.5f);
  const float rounded = static_cast<float>(step) * 2 / kSteps - 1;
  constexpr auto& numbers = kNf4AbsmaxNumbers;
  const auto above = std::lower_bound(numbers.begin() + 1, numbers.end() - 1, rounded), below = above - 1;
  return static_cast<uint8_t>((*above - rounded <= rounded - *below ? above : below) - numbers.begin());
}

}  // namespace

Nf4Absmaxes QuantiseAbsmaxes(std::span<const float> absmax) {
  Nf4Absmaxes q;
  double sum = 0;
  for (const float x : absmax) sum += static_cast<double>(x);
  q.mean = absmax.empty() ? 0 : static_cast<float>(sum / static_cast<double>(absmax.size()));
  for (size_t begin = 0; begin < absmax.size(); begin += kNf4Group) {
    const auto group = absmax.subspan(begin, std::min<size_t>(kNf4Group, absmax.size() - begin));
    float scale = 0;
    for (const float x : group) scale = std::max(scale, std::fabs(x - q.mean));
    q.scales.push_back(scale);
    const float inverse = 1 / scale;  // infinite of 0 and of the smallest, which then count as 0
    for (const float x : group) {
      q.indices.push_back(std::isinf(inverse) ? 0 : AbsmaxIndex(std::clamp((x - q.mean) * inverse, -1.0f, 1.0f)));
    }
  }
  return q;
}

void Nf4Indices(std::span<const float> x, float absmax, bool whole, uint8_t* indices) {
  constexpr float kLeast = 1e-38f;
  TEMPER_CHECK(std::ssize(x) <= kNf4Block) << x.size();
  const float divisor = std::max(absmax, kLeast), factor = 1 / divisor;
  float part[kNf4Block] = {};
  for (size_t i = 0; i < x.size(); ++i) part[i] = whole ? x[i] * factor : x[i] / divisor;
  int32_t below[kNf4Block] = {};  // how many borders
  for (int i = 0; i < 15; ++i) {
    const float border = (kNf4Numbers[i] + kNf4Numbers[i + 1]) / 2;
    for (int64_t e = 0; e < kNf4Block; ++e) below[e] += part[e] > border;
  }
  for (size_t i = 0; i < x.size(); ++i) indices[i] = static_cast<uint8_t>(below[i]);
}

void WriteNf4Row(std::span<const uint8_t> indices, int64_t at, const Nf4Absmaxes& absmaxes, std::byte* out) {
  const auto columns = static_cast<int64_t>(indices.size());
  std::byte* end = out + Nf4RowBytes(columns);
  std::memset(out, 0, static_cast<size_t>(end - out));
  for (int64_t i = 0; i < columns; ++i) {
    out[i / 2] |= static_cast<std::byte>(indices[static_cast<size_t>(i)] << (i % 2 == 0 ? 4 : 0));
  }
  if (columns == 0) return;
  const int64_t first = at / kNf4Block, last = (at + columns - 1) / kNf4Block;
  std::memcpy(out + (columns + 1) / 2, absmaxes.indices.data() + first, static_cast<size_t>(last - first + 1));
  const auto put = [&end](float x) { std::memcpy(end -= sizeof x, &x, sizeof x); };
  put(absmaxes.mean);
  for (int64_t g = first / kNf4Group; g <= last / kNf4Group; ++g) put(absmaxes.scales[static_cast<size_t>(g)]);
  std::byte* const places = out + Nf4RowBytes(columns) - Nf4EndBytes(columns);
  places[0] = static_cast<std::byte>(at % kNf4Block);
  places[1] = static_cast<std::byte>(first % kNf4Group);
}

}  // namespace temper
