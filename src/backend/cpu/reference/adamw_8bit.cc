// AdamW of moments in blocks: a step of backend/cpu/pointwise/adamw_step.h between reading each moment and rounding it
// to the nearest number of its map, found by going through all borders between them.
#include <cmath>
#include <cstring>

#include "backend/cpu/pointwise/adamw_step.h"
#include "backend/cpu/reference/call.h"
#include "tensor/dynamic_blocks.h"

namespace temper::reference {
namespace {

float Number(const DynamicBlocks& blocks, const std::byte* block, int64_t i) {
  float absmax;
  std::memcpy(&absmax, block + kDynamicBlock, sizeof absmax);
  return blocks.numbers()[static_cast<uint8_t>(block[i])] * absmax;
}

void Round(const DynamicBlocks& blocks, const float* x, int64_t n, std::byte* block) {
  float absmax = 0;
  for (int64_t i = 0; i < n; ++i) absmax = std::fabs(x[i]) > absmax || std::isnan(x[i]) ? std::fabs(x[i]) : absmax;
  const float inverse = 1 / (absmax < 1e-38f ? 1e-38f : absmax);
  std::memset(block, 0, kDynamicBlock);
  for (int64_t i = 0; i < n && std::isfinite(absmax); ++i) {
    const float scaled = x[i] * inverse;
    int below = 0;
    while (below < 255 && blocks.border(below) < scaled) ++below;
    block[i] = static_cast<std::byte>(below);
  }
  std::memcpy(block + kDynamicBlock, &absmax, sizeof absmax);
}

}  // namespace

Status Adamw8bit(const Call& call) {
  const Operand master = call.In(0), gradient = call.In(1);
  const std::byte *const m_blocks = call.In(2).data(), *const v_blocks = call.In(3).data();
  const AdamwScalars c = PrepareAdamw(call.attributes(), reinterpret_cast<const float*>(call.In(4).data()),
                                      reinterpret_cast<const double*>(call.In(5).data()));
  const DynamicBlocks &first = DynamicBlocks::Signed(), &second = DynamicBlocks::Unsigned();
  const bool weight = call.attributes().Flag("weight");
  float new_m[kDynamicBlock], new_v[kDynamicBlock];
  for (int64_t begin = 0; begin < master.elements(); begin += kDynamicBlock) {
    const int64_t at = begin / kDynamicBlock * kDynamicBlockBytes;
    const int64_t n = std::min(kDynamicBlock, master.elements() - begin);
    for (int64_t i = 0; i < n; ++i) {
      const float g = static_cast<float>(gradient[begin + i]) * c.clip;
      const float m = std::fma(c.beta1, Number(first, m_blocks + at, i), c.one_minus_beta1 * g);
      const float q = g * g;
      const float v = std::fma(c.beta2, Number(second, v_blocks + at, i), c.one_minus_beta2 * q);
      const float d = std::sqrt(v) / c.root_correction2 + c.eps;
      const float w = std::fma(c.minus_step, m / d, c.decay * static_cast<float>(master[begin + i]));
      call.Out(0).Store(begin + i, w);
      if (weight) call.Out(3).Store(begin + i, w);
      new_m[i] = m;
      new_v[i] = v;
    }
    Round(first, new_m, n, call.Out(1).data() + at);
    Round(second, new_v, n, call.Out(2).data() + at);
  }
  return OkStatus();
}

}  // namespace temper::reference
