// stochastic_round: its loop by the draws of the elements' places.
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/drawn_kernel.h"

namespace temper {

std::unique_ptr<Kernel> MakeStochasticRound(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0]}) || !AllFast({spec.outputs[0]})) return nullptr;
  return MakeDrawnKernel<float, bf16>(spec, VectorsFor<float>(isa).stochastic_round);
}

}  // namespace temper
