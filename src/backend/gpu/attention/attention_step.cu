// attention_step and its backward: this rank's queries on the keys of one rank of a context-parallel group, by the
// kernels of attention. Rows are dealt (tensor/context_part.h): which local keys a local query sees follows from both
// ranks' places.
#include "backend/gpu/attention/attention_matrix.h"
#include "backend/gpu/attention/attention_tiling.h"
#include "backend/gpu/attention/attention_warpgroup.h"

namespace temper::gpu {

std::unique_ptr<Kernel> MakeAttentionStep(const KernelSpec& spec, const Context& context) {
  const Heads heads = HeadsOf(spec.inputs[0], spec.attributes);
  if (!IsCompute(spec.inputs[0]) || heads.E > kMostHeadDim) return nullptr;
  const Dealt dealt = DealtOf(spec.attributes);
  const bool acc = spec.attributes.Flag("acc");
  Faults::Word fault = context.faults->Register([](int64_t word) {
    return "attention_step: token " + std::to_string(word - 1) +
           " of this rank does not name the first token of its document: document starts must not fall, and lie before "
           "their token";
  });
  if (spec.inputs[0].dtype == DType::kBF16) {
    if (auto kernel = MakeWarpgroupAttention<float>(heads, dealt, acc, context, &fault)) return kernel;
    if (auto kernel = MakeMatrixAttention<float>(heads, dealt, acc, context, &fault)) return kernel;
  }
  return DispatchAttention(spec.inputs[0], heads.E, [&]<class T, class S>() -> std::unique_ptr<Kernel> {
    return MakeKernel([heads, dealt, acc, stream = context.stream, fault = std::move(fault)](const KernelArgs& args) {
      return LaunchAttention<T, float, S>(args, heads, dealt, acc, fault.get(), stream);
    });
  });
}

std::unique_ptr<Kernel> MakeAttentionStepBackward(const KernelSpec& spec, const Context& context) {
  const Heads heads = HeadsOf(spec.inputs[1], spec.attributes);
  TEMPER_CHECK(spec.workspace >= GpuAttentionScratchOf(spec.inputs[1], spec.attributes).bytes) << spec.workspace.v;
  const Dealt dealt = DealtOf(spec.attributes);
  const bool acc = spec.attributes.Flag("acc");
  if (spec.inputs[1].dtype == DType::kBF16) {
    if (auto kernel = MakeWarpgroupAttentionBackward<float>(heads, dealt, acc, context)) return kernel;
    if (auto kernel = MakeMatrixAttentionBackward<float>(heads, dealt, acc, context)) return kernel;
  }
  return DispatchAttention(spec.inputs[1], heads.E, [&]<class T, class S>() -> std::unique_ptr<Kernel> {
    return MakeKernel([=, stream = context.stream](const KernelArgs& args) {
      return LaunchAttentionBackward<T, float, S>(args, heads, dealt, acc, stream);
    });
  });
}

}  // namespace temper::gpu
