// Encoders of blocks whose groups are searched side by side: lane g of a vector belongs to group g. Each lane adds up
// in the order of the scalar twin, so that the bits are the same.
#include <cmath>
#include <cstring>

#include "format/gguf/block_encoders.h"
#include "tensor/block_layout.h"

namespace temper::internal {
namespace {

using Floats = float __attribute__((vector_size(32)));
using Ints = int32_t __attribute__((vector_size(32)));
constexpr int kLanes = 8;

Floats Abs(Floats x) {
  return reinterpret_cast<Floats>(reinterpret_cast<Ints>(x) & 0x7fffffff);
}
Floats Select(Ints mask, Floats yes, Floats no) {
  return reinterpret_cast<Floats>((reinterpret_cast<Ints>(yes) & mask) | (reinterpret_cast<Ints>(no) & ~mask));
}
Ints Select(Ints mask, Ints yes, Ints no) {
  return (yes & mask) | (no & ~mask);
}
bool Any(Ints mask) {
  Ints zero{};
  return std::memcmp(&mask, &zero, sizeof(mask)) != 0;
}
// NearestInt, kept within [low, high].
Ints Round(Floats x, int low, int high) {
  Ints n = (reinterpret_cast<Ints>(x + 12582912.f) & 0x007fffff) - 0x00400000;
  n = Select(n < low, Ints{} + low, n);
  return Select(n > high, Ints{} + high, n);
}
Floats ToFloats(Ints n) {
  return __builtin_convertvector(n, Floats);
}
Floats SquareRoot(Floats x) {
  for (int lane = 0; lane < kLanes; ++lane) x[lane] = std::sqrt(x[lane]);
  return x;
}

// Element i of all groups, which have `count` elements each.
template <int count>
void Gather(const float* x, Floats* element) {
  for (int i = 0; i < count; ++i) {
    for (int g = 0; g < kLanes; ++g) element[i][g] = x[count * g + i];
  }
}

// FindScaleAndMin of the twin, of 8 groups. kSteps + 1 scales are tried.
template <int kMost, int kSteps>
void FindGroups(const float* from, float first, Groups32* groups) {
  constexpr int kGroup = 32;
  Floats x[kGroup], weight[kGroup];
  Ints q[kGroup], tried[kGroup];
  Gather<kGroup>(from, x);
  Floats sum{};
  for (int i = 0; i < kGroup; ++i) sum += x[i] * x[i];
  const Floats rms = SquareRoot(sum / static_cast<float>(kGroup));
  for (int i = 0; i < kGroup; ++i) weight[i] = rms + Abs(x[i]);

  Floats min = x[0], max = x[0], sum_w = weight[0], sum_x = sum_w * x[0];
  for (int i = 1; i < kGroup; ++i) {
    min = Select(x[i] < min, x[i], min);
    max = Select(max < x[i], x[i], max);
    sum_w += weight[i];
    sum_x += weight[i] * x[i];
  }
  min = Select(min > 0, Floats{}, min);
  const Ints flat = max == min;  // lanes whose numbers are all the same: 0
  const Floats lowest = min;
  constexpr auto kMostF = static_cast<float>(kMost);
  Floats inverse = kMostF / (max - min), scale = 1 / inverse, least{};
  for (int i = 0; i < kGroup; ++i) {
    q[i] = Round(inverse * (x[i] - min), 0, kMost);
    const Floats error = scale * ToFloats(q[i]) + min - x[i];
    least += weight[i] * (error * error);
  }
  for (int step = 0; step <= kSteps; ++step) {
    inverse = (first + 0.1f * static_cast<float>(step) + kMostF) / (max - min);
    Floats sum_q{}, sum_q2{}, sum_xq{};
    for (int i = 0; i < kGroup; ++i) {
      tried[i] = Round(inverse * (x[i] - min), 0, kMost);
      const Floats n = ToFloats(tried[i]), wq = weight[i] * n;
      sum_q += wq;
      sum_q2 += wq * n;
      sum_xq += wq * x[i];
    }
    const Floats determinant = sum_w * sum_q2 - sum_q * sum_q;
    Floats this_scale = (sum_w * sum_xq - sum_x * sum_q) / determinant;
    Floats this_min = (sum_q2 * sum_x - sum_q * sum_xq) / determinant;
    const Ints above = this_min > 0;
    this_min = Select(above, Floats{}, this_min);
    this_scale = Select(above, sum_xq / sum_q2, this_scale);
    Floats error_sum{};
    for (int i = 0; i < kGroup; ++i) {
      const Floats error = this_scale * ToFloats(tried[i]) + this_min - x[i];
      error_sum += weight[i] * (error * error);
    }
    const Ints better = (determinant > 0) & (error_sum < least);
    if (!Any(better)) continue;
    for (int i = 0; i < kGroup; ++i) q[i] = Select(better, tried[i], q[i]);
    least = Select(better, error_sum, least);
    scale = Select(better, this_scale, scale);
    min = Select(better, this_min, min);
  }
  scale = Select(flat, Floats{}, scale);
  min = Select(flat, lowest, min);
  for (int g = 0; g < kLanes; ++g) {
    groups->scale[g] = scale[g];
    groups->min[g] = -min[g];
    for (int i = 0; i < kGroup; ++i) groups->q[kGroup * g + i] = flat[g] ? 0 : static_cast<uint8_t>(q[i][g]);
  }
}

// FindScale of the twin, of 8 groups of 16.
void FindScales(const float* from, float* scales, int8_t* integers) {
  constexpr int kCount = 16, kMost = 32;
  Floats x[kCount];
  Ints q[kCount];
  Gather<kCount>(from, x);
  Floats max{}, amax{};
  for (int i = 0; i < kCount; ++i) {
    const Ints larger = Abs(x[i]) > amax;
    amax = Select(larger, Abs(x[i]), amax);
    max = Select(larger, x[i], max);
  }
  const Ints zero = amax < 1e-15f;
  Floats w[kCount], wx[kCount];
  for (int i = 0; i < kCount; ++i) {
    w[i] = x[i] * x[i];
    wx[i] = w[i] * x[i];
  }
  Floats scale{}, best{};
  for (int step = -10; step <= 9; ++step) {  // -10 stands for the first try, without a step
    if (step == 0) continue;
    const float most = step == -10 ? kMost : kMost + 0.1f * static_cast<float>(step);
    const Floats inverse = -most / max;
    Floats sum_xq{}, sum_q2{};
    Ints tried[kCount];
    for (int i = 0; i < kCount; ++i) {
      tried[i] = Round(inverse * x[i], -kMost, kMost - 1);
      const Floats n = ToFloats(tried[i]);
      sum_xq += wx[i] * n;
      sum_q2 += w[i] * n * n;
    }
    const Floats this_scale = sum_xq / sum_q2;
    Ints better = (sum_q2 > 0) & (sum_xq * sum_xq > best * sum_q2);
    if (step == -10) {
      better = Ints{} - 1;
      scale = Select(sum_q2 != 0, this_scale, Floats{});
    } else {
      if (!Any(better)) continue;
      scale = Select(better, this_scale, scale);
    }
    best = Select(better, scale * sum_xq, best);
    for (int i = 0; i < kCount; ++i) q[i] = Select(better, tried[i], q[i]);
  }
  for (int g = 0; g < kLanes; ++g) {
    scales[g] = zero[g] ? 0 : scale[g];
    for (int i = 0; i < kCount; ++i) {
      integers[kCount * g + i] = zero[g] ? 0 : static_cast<int8_t>(q[i][g] + kMost);
    }
  }
}

}  // namespace

void EncodeQ8Avx2(const float* x, std::byte* out, int64_t n) {
  auto* block = reinterpret_cast<BlockQ8*>(out);
  for (const float* const end = x + n; x != end; x += kSmallBlock, ++block) {
    Floats part[kSmallBlock / kLanes], largest{};
    std::memcpy(part, x, sizeof(part));
    for (const Floats& p : part) largest = Select(Abs(p) > largest, Abs(p), largest);
    float amax = 0;
    for (int lane = 0; lane < kLanes; ++lane) amax = largest[lane] > amax ? largest[lane] : amax;
    const float d = amax / 127, inverse = d != 0 ? 1 / d : 0;
    block->d = ToF16(d);
    for (int p = 0; p < kSmallBlock / kLanes; ++p) {
      // As std::round: halves go away from zero. The fraction is exact.
      const Floats scaled = part[p] * inverse;
      Ints q = __builtin_convertvector(scaled, Ints);
      const Floats fraction = scaled - ToFloats(q);
      q = q - (fraction >= 0.5f) + (fraction <= -0.5f);
      for (int lane = 0; lane < kLanes; ++lane) block->q[kLanes * p + lane] = static_cast<int8_t>(q[lane]);
    }
  }
}

void EncodeQ4KAvx2(const float* x, std::byte* out, int64_t n) {
  for (int64_t i = 0; i < n; i += kSuperBlock, out += sizeof(BlockQ4K)) {
    Groups32 groups;
    FindGroups<15, 20>(x + i, -1.f, &groups);
    FinishQ4K(x + i, groups, out);
  }
}

void EncodeQ5KAvx2(const float* x, std::byte* out, int64_t n) {
  for (int64_t i = 0; i < n; i += kSuperBlock, out += sizeof(BlockQ5K)) {
    Groups32 groups;
    FindGroups<31, 15>(x + i, -0.5f, &groups);
    FinishQ5K(x + i, groups, out);
  }
}

void EncodeQ6KAvx2(const float* x, std::byte* out, int64_t n) {
  for (int64_t i = 0; i < n; i += kSuperBlock, out += sizeof(BlockQ6K)) {
    Groups16 groups;
    FindScales(x + i, groups.scale, groups.q);
    FindScales(x + i + 128, groups.scale + 8, groups.q + 128);
    FinishQ6K(x + i, groups, out);
  }
}

}  // namespace temper::internal
