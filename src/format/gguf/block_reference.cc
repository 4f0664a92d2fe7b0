// Encoders of blocks, one number after another.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>

#include "format/gguf/block_encoders.h"
#include "tensor/block_layout.h"

namespace temper::internal {
namespace {

constexpr float kAllZero = 1e-15f;  // a group whose numbers are all smaller becomes zeros

template <class Block>
Block* BlocksAt(std::byte* out) {
  return reinterpret_cast<Block*>(out);
}

// How a group of 32 is searched: the largest integer, and the scales tried.
struct Search {
  int most;
  float first, step;
  int steps;
};
constexpr Search kSearchQ4{15, -1.f, 0.1f, 20}, kSearchQ5{31, -0.5f, 0.1f, 15};
constexpr int kGroup = 32;

// The scale and the minimum with which scale q + min is next to x, weighted by `weight`: least squares for each of some
// ways to round, each from the best minimum so far. Returns the scale. `q` are the integers.
float FindScaleAndMin(const Search& search, const float* x, const float* weight, uint8_t* q, float* minus_min) {
  float min = x[0], max = x[0], sum_w = weight[0], sum_x = sum_w * x[0];
  for (int i = 1; i < kGroup; ++i) {
    min = std::min(min, x[i]);
    max = std::max(max, x[i]);
    sum_w += weight[i];
    sum_x += weight[i] * x[i];
  }
  if (min > 0) min = 0;
  *minus_min = -min;
  if (max == min) {
    std::fill_n(q, kGroup, uint8_t{0});
    return 0;
  }
  const auto most = static_cast<float>(search.most);
  float inverse = most / (max - min), scale = 1 / inverse, least = 0;
  for (int i = 0; i < kGroup; ++i) {
    q[i] = static_cast<uint8_t>(std::clamp(NearestInt(inverse * (x[i] - min)), 0, search.most));
    const float error = scale * q[i] + min - x[i];
    least += weight[i] * (error * error);
  }
  for (int step = 0; step <= search.steps; ++step) {
    inverse = (search.first + search.step * static_cast<float>(step) + most) / (max - min);
    uint8_t tried[kGroup];
    float sum_q = 0, sum_q2 = 0, sum_xq = 0;
    for (int i = 0; i < kGroup; ++i) {
      const int n = std::clamp(NearestInt(inverse * (x[i] - min)), 0, search.most);
      tried[i] = static_cast<uint8_t>(n);
      const float wq = weight[i] * static_cast<float>(n);
      sum_q += wq;
      sum_q2 += wq * static_cast<float>(n);
      sum_xq += wq * x[i];
    }
    const float determinant = sum_w * sum_q2 - sum_q * sum_q;
    if (!(determinant > 0)) continue;
    float this_scale = (sum_w * sum_xq - sum_x * sum_q) / determinant;
    float this_min = (sum_q2 * sum_x - sum_q * sum_xq) / determinant;
    if (this_min > 0) {
      this_min = 0;
      this_scale = sum_xq / sum_q2;
    }
    float error_sum = 0;
    for (int i = 0; i < kGroup; ++i) {
      const float error = this_scale * tried[i] + this_min - x[i];
      error_sum += weight[i] * (error * error);
    }
    if (!(error_sum < least)) continue;
    std::copy_n(tried, kGroup, q);
    least = error_sum;
    scale = this_scale;
    min = this_min;
  }
  *minus_min = -min;
  return scale;
}

Groups32 FindGroups(const Search& search, const float* x) {
  Groups32 groups;
  for (int g = 0; g < kSuperBlock / kGroup; ++g) {
    const float* const group = x + kGroup * g;
    float sum = 0, weight[kGroup];
    for (int i = 0; i < kGroup; ++i) sum += group[i] * group[i];
    const float rms = std::sqrt(sum / kGroup);
    for (int i = 0; i < kGroup; ++i) weight[i] = rms + std::fabs(group[i]);
    groups.scale[g] = FindScaleAndMin(search, group, weight, groups.q + kGroup * g, &groups.min[g]);
  }
  return groups;
}

// The 6 bits of scale g and minimum g.
std::pair<int, int> ScaleAndMin(const uint8_t* scales, int g) {
  if (g < 4) return {scales[g] & 63, scales[g + 4] & 63};
  return {(scales[g + 4] & 15) | (scales[g - 4] >> 6) << 4, (scales[g + 4] >> 4) | (scales[g] >> 6) << 4};
}

// Rounds the groups' scales and minima to 6 bits and the numbers to integers up to `most` with these.
void RoundGroups(const float* x, int most, Groups32& groups, f16* d, f16* dmin, uint8_t* scales) {
  float max_scale = 0, max_min = 0;
  for (int g = 0; g < 8; ++g) {
    max_scale = std::max(max_scale, groups.scale[g]);
    max_min = std::max(max_min, groups.min[g]);
  }
  const float inverse_scale = max_scale > 0 ? 63.f / max_scale : 0, inverse_min = max_min > 0 ? 63.f / max_min : 0;
  for (int g = 0; g < 8; ++g) {
    const int scale = std::min<int>(63, static_cast<uint8_t>(NearestInt(inverse_scale * groups.scale[g])));
    const int min = std::min<int>(63, static_cast<uint8_t>(NearestInt(inverse_min * groups.min[g])));
    if (g < 4) {
      scales[g] = static_cast<uint8_t>(scale);
      scales[g + 4] = static_cast<uint8_t>(min);
    } else {
      scales[g + 4] = static_cast<uint8_t>((scale & 15) | (min & 15) << 4);
      scales[g - 4] = static_cast<uint8_t>(scales[g - 4] | (scale >> 4) << 6);
      scales[g] = static_cast<uint8_t>(scales[g] | (min >> 4) << 6);
    }
  }
  *d = ToF16(max_scale / 63.f);
  *dmin = ToF16(max_min / 63.f);
  for (int g = 0; g < 8; ++g) {
    const auto [scale, min] = ScaleAndMin(scales, g);
    const float step = ToFloat(*d) * static_cast<float>(scale);
    if (step == 0) continue;
    const float shift = ToFloat(*dmin) * static_cast<float>(min);
    for (int i = kGroup * g; i < kGroup * (g + 1); ++i) {
      groups.q[i] = static_cast<uint8_t>(std::clamp(NearestInt((x[i] + shift) / step), 0, most));
    }
  }
}

// The scale with which scale q is next to x, for q from -32 to 31, weighted by x^2. `q` are the integers + 32.
float FindScale(const float* x, int8_t* q) {
  constexpr int kCount = 16, kMost = 32;
  float max = 0, amax = 0;
  for (int i = 0; i < kCount; ++i) {
    if (std::fabs(x[i]) > amax) {
      amax = std::fabs(x[i]);
      max = x[i];
    }
  }
  if (amax < kAllZero) {
    std::fill_n(q, kCount, int8_t{0});
    return 0;
  }
  const auto round = [&](float inverse, int i) { return std::clamp(NearestInt(inverse * x[i]), -kMost, kMost - 1); };
  const auto sums = [&](float inverse) {
    std::pair<float, float> s{0, 0};  // of w x q, of w q^2
    for (int i = 0; i < kCount; ++i) {
      const float w = x[i] * x[i];
      const auto n = static_cast<float>(round(inverse, i));
      s.first += w * x[i] * n;
      s.second += w * n * n;
    }
    return s;
  };
  const auto keep = [&](float inverse) {
    for (int i = 0; i < kCount; ++i) q[i] = static_cast<int8_t>(kMost + round(inverse, i));
  };
  float inverse = -kMost / max;
  keep(inverse);
  auto [sum_xq, sum_q2] = sums(inverse);
  float scale = sum_q2 != 0 ? sum_xq / sum_q2 : 0, best = scale * sum_xq;
  for (int step = -9; step <= 9; ++step) {
    if (step == 0) continue;
    inverse = -(kMost + 0.1f * static_cast<float>(step)) / max;
    std::tie(sum_xq, sum_q2) = sums(inverse);
    if (!(sum_q2 > 0 && sum_xq * sum_xq > best * sum_q2)) continue;
    keep(inverse);
    scale = sum_xq / sum_q2;
    best = scale * sum_xq;
  }
  return scale;
}

}  // namespace

void EncodeQ8(const float* x, std::byte* out, int64_t n) {
  auto* block = BlocksAt<BlockQ8>(out);
  for (const float* const end = x + n; x != end; x += kSmallBlock, ++block) {
    float amax = 0;
    for (int i = 0; i < kSmallBlock; ++i) amax = std::max(amax, std::fabs(x[i]));
    const float d = amax / 127, inverse = d != 0 ? 1 / d : 0;
    block->d = ToF16(d);
    for (int i = 0; i < kSmallBlock; ++i) block->q[i] = static_cast<int8_t>(std::round(x[i] * inverse));
  }
}

void EncodeQ50(const float* x, std::byte* out, int64_t n) {
  auto* block = BlocksAt<BlockQ50>(out);
  for (const float* const end = x + n; x != end; x += kSmallBlock, ++block) {
    float amax = 0, max = 0;
    for (int i = 0; i < kSmallBlock; ++i) {
      if (amax < std::fabs(x[i])) {
        amax = std::fabs(x[i]);
        max = x[i];
      }
    }
    const float d = max / -16, inverse = d != 0 ? 1 / d : 0;
    block->d = ToF16(d);
    uint32_t high = 0;
    for (int i = 0; i < kSmallBlock / 2; ++i) {
      const auto q = [&](int at) {
        return static_cast<uint32_t>(
            std::min<uint8_t>(31, static_cast<uint8_t>(static_cast<int8_t>(x[at] * inverse + 16.5f))));
      };
      const uint32_t a = q(i), b = q(i + kSmallBlock / 2);
      block->low[i] = static_cast<uint8_t>((a & 15) | (b & 15) << 4);
      high |= (a >> 4) << i | (b >> 4) << (i + kSmallBlock / 2);
    }
    std::memcpy(block->high, &high, sizeof(high));
  }
}

void EncodeQ51(const float* x, std::byte* out, int64_t n) {
  auto* block = BlocksAt<BlockQ51>(out);
  for (const float* const end = x + n; x != end; x += kSmallBlock, ++block) {
    const float min = *std::min_element(x, x + kSmallBlock), max = *std::max_element(x, x + kSmallBlock);
    const float d = (max - min) / 31, inverse = d != 0 ? 1 / d : 0;
    block->d = ToF16(d);
    block->m = ToF16(min);
    uint32_t high = 0;
    for (int i = 0; i < kSmallBlock / 2; ++i) {
      const auto q = [&](int at) { return static_cast<uint32_t>((x[at] - min) * inverse + 0.5f); };
      const uint32_t a = q(i), b = q(i + kSmallBlock / 2);
      block->low[i] = static_cast<uint8_t>((a & 15) | (b & 15) << 4);
      high |= ((a >> 4) & 1) << i | ((b >> 4) & 1) << (i + kSmallBlock / 2);
    }
    std::memcpy(block->high, &high, sizeof(high));
  }
}

void FinishQ4K(const float* x, Groups32& groups, std::byte* out) {
  auto* const block = BlocksAt<BlockQ4K>(out);
  RoundGroups(x, kSearchQ4.most, groups, &block->d, &block->dmin, block->scales);
  for (int half = 0; half < kSuperBlock / 2; half += kGroup) {
    const uint8_t* const q = groups.q + 2 * half;
    for (int i = 0; i < kGroup; ++i) block->low[half + i] = static_cast<uint8_t>(q[i] | q[i + kGroup] << 4);
  }
}

void FinishQ5K(const float* x, Groups32& groups, std::byte* out) {
  auto* const block = BlocksAt<BlockQ5K>(out);
  RoundGroups(x, kSearchQ5.most, groups, &block->d, &block->dmin, block->scales);
  std::memset(block->high, 0, sizeof(block->high));
  for (int half = 0; half < kSuperBlock / 2; half += kGroup) {
    const uint8_t* const q = groups.q + 2 * half;
    const int g = 2 * half / kGroup;
    for (int i = 0; i < kGroup; ++i) {
      block->low[half + i] = static_cast<uint8_t>((q[i] & 15) | (q[i + kGroup] & 15) << 4);
      block->high[i] = static_cast<uint8_t>(block->high[i] | (q[i] >> 4) << g | (q[i + kGroup] >> 4) << (g + 1));
    }
  }
}

void EncodeQ4K(const float* x, std::byte* out, int64_t n) {
  for (int64_t i = 0; i < n; i += kSuperBlock, out += sizeof(BlockQ4K)) {
    Groups32 groups = FindGroups(kSearchQ4, x + i);
    FinishQ4K(x + i, groups, out);
  }
}

void EncodeQ5K(const float* x, std::byte* out, int64_t n) {
  for (int64_t i = 0; i < n; i += kSuperBlock, out += sizeof(BlockQ5K)) {
    Groups32 groups = FindGroups(kSearchQ5, x + i);
    FinishQ5K(x + i, groups, out);
  }
}

void FinishQ6K(const float* x, Groups16& groups, std::byte* out) {
  constexpr int kCount = 16, kGroups = kSuperBlock / kCount;
  auto* const block = BlocksAt<BlockQ6K>(out);
  float max = 0, amax = 0;
  for (const float scale : groups.scale) {
    if (std::fabs(scale) > amax) {
      amax = std::fabs(scale);
      max = scale;
    }
  }
  if (amax < kAllZero) {
    *block = {};
    return;
  }
  const float inverse = -128.f / max;
  block->d = ToF16(1 / inverse);
  for (int g = 0; g < kGroups; ++g) {
    block->scales[g] = static_cast<int8_t>(std::min(127, NearestInt(inverse * groups.scale[g])));
    const float step = ToFloat(block->d) * block->scales[g];
    if (step == 0) continue;
    for (int i = kCount * g; i < kCount * (g + 1); ++i) {
      groups.q[i] = static_cast<int8_t>(std::clamp(NearestInt(x[i] / step), -32, 31) + 32);
    }
  }
  for (int half = 0; half < 2; ++half) {
    const int8_t* const q = groups.q + 128 * half;
    for (int i = 0; i < 32; ++i) {
      block->low[64 * half + i] = static_cast<uint8_t>((q[i] & 15) | (q[i + 64] & 15) << 4);
      block->low[64 * half + i + 32] = static_cast<uint8_t>((q[i + 32] & 15) | (q[i + 96] & 15) << 4);
      block->high[32 * half + i] =
          static_cast<uint8_t>(q[i] >> 4 | q[i + 32] >> 4 << 2 | q[i + 64] >> 4 << 4 | q[i + 96] >> 4 << 6);
    }
  }
}

void EncodeQ6K(const float* x, std::byte* out, int64_t n) {
  for (int64_t i = 0; i < n; i += kSuperBlock, out += sizeof(BlockQ6K)) {
    Groups16 groups;
    for (int g = 0; g < kSuperBlock / 16; ++g) groups.scale[g] = FindScale(x + i + 16 * g, groups.q + 16 * g);
    FinishQ6K(x + i, groups, out);
  }
}

}  // namespace temper::internal
