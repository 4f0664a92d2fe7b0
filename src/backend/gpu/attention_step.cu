// attention_step and its backward: this rank's queries on the keys of one rank of a context-parallel group. Rows are
// dealt (tensor/context_part.h): which local keys a local query sees follows from both ranks' places.
#include "backend/gpu/attention_tiling.h"
#include "graph/ops/context_attributes.h"

namespace temper::gpu {
namespace {

struct Dealt {
  ContextPart queries, keys;

  __device__ int64_t First(const Heads& heads, const int* document_start_T, int64_t t) const {
    const int64_t place = queries.PlaceOf(t);
    int64_t first = document_start_T[t];
    if (heads.window > 0 && first < place - heads.window + 1) first = place - heads.window + 1;
    return keys.LocalFrom(first < 0 ? 0 : first > place ? place : first);
  }
  __device__ int64_t End(int64_t t) const { return keys.LocalFrom(queries.PlaceOf(t) + 1); }
  __device__ int64_t FirstQuery(int64_t s) const { return queries.LocalFrom(keys.PlaceOf(s)); }
  __device__ int64_t PlaceOf(int64_t t) const { return queries.PlaceOf(t); }
};

Dealt DealtOf(const Attributes& a) {
  return {ContextPartOf(a, "row"), ContextPartOf(a, "row", "origin")};
}

}  // namespace

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
  return DispatchAttention(spec.inputs[0], heads.E, [&]<class T, class S>() -> std::unique_ptr<Kernel> {
    return MakeKernel([heads, dealt, acc, stream = context.stream, fault = std::move(fault)](const KernelArgs& args) {
      return LaunchAttention<T, float, S>(args, heads, dealt, acc, fault.get(), stream);
    });
  });
}

std::unique_ptr<Kernel> MakeAttentionStepBackward(const KernelSpec& spec, const Context& context) {
  const Heads heads = HeadsOf(spec.inputs[1], spec.attributes);
  TEMPER_CHECK(spec.workspace.v >= heads.tokens * heads.heads * 4) << spec.workspace.v << " bytes for delta";
  const Dealt dealt = DealtOf(spec.attributes);
  const bool acc = spec.attributes.Flag("acc");
  return DispatchAttention(spec.inputs[1], heads.E, [&]<class T, class S>() -> std::unique_ptr<Kernel> {
    return MakeKernel([=, stream = context.stream](const KernelArgs& args) {
      return LaunchAttentionBackward<T, float, S>(args, heads, dealt, acc, stream);
    });
  });
}

}  // namespace temper::gpu
