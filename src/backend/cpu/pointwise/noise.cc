// noise: its loop by the draws of the elements' places.
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/drawn_kernel.h"

namespace temper {

std::unique_ptr<Kernel> MakeNoise(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0], spec.outputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class Element>() {
    const auto magnitude = static_cast<float>(spec.attributes.Double("magnitude"));
    return MakeDrawnKernel<Element>(spec, [=, noise = VectorsFor<Element>(isa).noise](
                                              const Draws& draws, const Element* x, Element* y, int64_t begin,
                                              int64_t n) { noise(draws, magnitude, x, y, begin, n); });
  });
}

}  // namespace temper
