// attention, by its tiling (attention_tiling.h), in bf16 by matrix units where there are some, and by a
// library where one is faster.
#include "backend/gpu/attention/attention_matrix.h"
#include "backend/gpu/attention/attention_tiling.h"
#include "backend/gpu/attention/attention_warpgroup.h"
#include "backend/gpu/attention/packed_attention_kernel.h"

namespace temper::gpu {

std::unique_ptr<Kernel> MakeAttention(const KernelSpec& spec, const Context& context) {
  const Heads heads = HeadsOf(spec.inputs[0], spec.attributes);
  if (!IsCompute(spec.inputs[0]) || heads.E > kMostHeadDim) return nullptr;
  Faults::Word fault = context.faults->Register([](int64_t word) {
    return "attention: token " + std::to_string(word - 1) +
           " does not name the first token of its document: document starts must not fall, and lie before their token";
  });
  if (spec.inputs[0].dtype == DType::kBF16) {
    if (auto kernel = MakeWarpgroupAttention<bf16>(heads, Causal(), /*acc=*/false, context, &fault)) return kernel;
    if (auto kernel = MakeMatrixAttention<bf16>(heads, Causal(), /*acc=*/false, context, &fault)) {
      return WithPackedAttention(spec, context, std::move(kernel));
    }
  }
  return DispatchAttention(spec.inputs[0], heads.E, [&]<class T, class S>() -> std::unique_ptr<Kernel> {
    return MakeKernel([heads, stream = context.stream, fault = std::move(fault)](const KernelArgs& args) {
      return LaunchAttention<T, T, S>(args, heads, Causal(), /*acc=*/false, fault.get(), stream);
    });
  });
}

}  // namespace temper::gpu
