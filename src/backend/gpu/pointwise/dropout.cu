#include <cmath>

#include "backend/gpu/pointwise/drawn.h"

namespace temper::gpu {
namespace {

struct Dropped {
  uint32_t threshold;  // a draw's upper 24 bits below it drop the element
  float scale;

  __device__ float operator()(float x, uint32_t draw) const { return draw >> 8 >= threshold ? x * scale : 0; }
};

}  // namespace

std::unique_ptr<Kernel> MakeDropout(const KernelSpec& spec, const Context& context) {
  const double p = spec.attributes.Double("p");
  // u >= p with u = k 2^-24 is k >= ceil(p 2^24): the product is exact in double.
  return MakeDrawn(
      spec, context,
      Dropped{.threshold = static_cast<uint32_t>(std::ceil(p * 0x1.0p24)), .scale = static_cast<float>(1 / (1 - p))});
}

}  // namespace temper::gpu
