#include "backend/gpu/pointwise/drawn.h"

namespace temper::gpu {
namespace {

struct Noisy {
  float magnitude;

  __device__ float operator()(float x, uint32_t draw) const {
    return x + Fma(static_cast<float>(draw >> 8) * 0x1.0p-24f, 2 * magnitude, -magnitude);
  }
};

}  // namespace

std::unique_ptr<Kernel> MakeNoise(const KernelSpec& spec, const Context& context) {
  return MakeDrawn(spec, context, Noisy{static_cast<float>(spec.attributes.Double("magnitude"))});
}

}  // namespace temper::gpu
