// attention, by its tiling (attention_tiling.h), in bf16 by matrix units where there are some.
#include "backend/gpu/attention_matrix.h"
#include "backend/gpu/attention_tiling.h"

namespace temper::gpu {

std::unique_ptr<Kernel> MakeAttention(const KernelSpec& spec, const Context& context) {
  const Heads heads = HeadsOf(spec.inputs[0], spec.attributes);
  if (!IsCompute(spec.inputs[0]) || heads.E > kMostHeadDim) return nullptr;
  int64_t* const fault = context.faults->Register([](int64_t word) {
    return "attention: token " + std::to_string(word - 1) +
           " does not name the first token of its document: document starts must not fall, and lie before their token";
  });
  if (spec.inputs[0].dtype == DType::kBF16) {
    if (auto kernel = MakeMatrixAttention(heads, context, fault)) return kernel;
  }
  return DispatchAttention(spec.inputs[0], heads.E, [&]<class T, class S>() -> std::unique_ptr<Kernel> {
    return MakeKernel([=, stream = context.stream](const KernelArgs& args) {
      if (heads.tokens == 0) return OkStatus();
      const auto tiles = static_cast<unsigned>((heads.tokens + S::kRows - 1) / S::kRows);
      const ForwardOperands<T, T> x = {.q = In<T>(args, 0),
                                       .k = In<T>(args, 1),
                                       .v = In<T>(args, 2),
                                       .document_start_T = In<const int>(args, 3),
                                       .o = Out<T>(args, 0),
                                       .lse_TH = Out<float>(args, 1)};
      return TEMPER_LAUNCH((AttentionTiles<T, T, S, Causal>), (gpuDim3{tiles, static_cast<unsigned>(heads.heads)}),
                           unsigned{kBlockThreads}, stream, x, heads, Causal(), fault);
    });
  });
}

}  // namespace temper::gpu
