// dropout: its loop by the draws of the elements' places.
#include <cmath>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/drawn_kernel.h"

namespace temper {

std::unique_ptr<Kernel> MakeDropout(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0], spec.outputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class Element>() {
    const double p = spec.attributes.Double("p");
    // u >= p with u = k 2^-24 is k >= ceil(p 2^24): the product is exact in double.
    const auto threshold = static_cast<uint32_t>(std::ceil(p * 0x1.0p24));
    const auto scale = static_cast<float>(1 / (1 - p));
    return MakeDrawnKernel<Element>(spec, [=, dropout = VectorsFor<Element>(isa).dropout](
                                              const Draws& draws, const Element* x, Element* y, int64_t begin,
                                              int64_t n) { dropout(draws, threshold, scale, x, y, begin, n); });
  });
}

}  // namespace temper
