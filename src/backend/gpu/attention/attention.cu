// attention, by its tiling (attention_tiling.h), in bf16 by matrix units where there are some, and by a
// library where one is faster.
#include "backend/gpu/attention/attention_matrix.h"
#include "backend/gpu/attention/attention_path.h"
#include "backend/gpu/attention/attention_tiling.h"
#include "backend/gpu/attention/attention_warpgroup.h"
#include "backend/gpu/attention/packed_attention_kernel.h"

namespace temper::gpu {
namespace {

// The card has Hopper's warpgroups, and the program was built without code for them.
[[maybe_unused]] bool LacksHopperCode() {
#if TEMPER_WGMMA && !defined(TEMPER_SM90A)
  return IsHopper();
#else
  return false;
#endif
}

void Say(AttentionPath path, const KernelSpec& spec, const Heads& heads) {
#if !defined(TEMPER_GPU_EMULATED)
  SayAttentionOnce({.path = path,
                    .head_dim = heads.E,
                    .bf16 = spec.inputs[0].dtype == DType::kBF16,
                    .cap = heads.cap != 0,
                    .lacks_hopper_code = path == AttentionPath::kMatrixUnits && LacksHopperCode()});
#else
  (void)path, (void)spec, (void)heads;
#endif
}

}  // namespace

std::unique_ptr<Kernel> MakeAttention(const KernelSpec& spec, const Context& context) {
  const Heads heads = HeadsOf(spec.inputs[0], spec.attributes);
  if (!IsPlain(spec.attributes, spec.inputs[1], spec.inputs[2])) return nullptr;
  if (!IsCompute(spec.inputs[0]) || heads.E > kMostHeadDim) return nullptr;
  Faults::Word fault = context.faults->Register([](int64_t word) {
    return "attention: token " + std::to_string(word - 1) +
           " does not name the first token of its document: document starts must not fall, and lie before their token";
  });
  if (spec.inputs[0].dtype == DType::kBF16) {
    if (auto kernel = MakeWarpgroupAttention<bf16>(heads, Causal(), /*acc=*/false, context, &fault)) {
      Say(AttentionPath::kWarpgroups, spec, heads);
      return kernel;
    }
    if (auto kernel = MakeMatrixAttention<bf16>(heads, Causal(), /*acc=*/false, context, &fault)) {
      Say(context.packed == nullptr ? AttentionPath::kMatrixUnits : AttentionPath::kLibrary, spec, heads);
      return WithPackedAttention(spec, context, std::move(kernel));
    }
  }
  Say(AttentionPath::kVectorUnits, spec, heads);
  return DispatchAttention(spec.inputs[0], heads.E, [&]<class T, class S>() -> std::unique_ptr<Kernel> {
    return MakeKernel([heads, stream = context.stream, fault = std::move(fault)](const KernelArgs& args) {
      return LaunchAttention<T, T, S>(args, heads, Causal(), /*acc=*/false, fault.get(), stream);
    });
  });
}

}  // namespace temper::gpu
