// Operands of the kernels of attention and of the steps of a ring (graph/op_list.inc): heads, and addresses.
#pragma once

#include "backend/gpu/faults.h"
#include "backend/gpu/launch.h"
#include "graph/ops/attention_heads.h"
#include "graph/ops/attention_scratch.h"

namespace temper::gpu {

struct Heads {
  int64_t tokens, heads, kv_heads, E, window;
  float scale;
  float cap = 0;  // of scaled scores: cap * tanh(score / cap); 0: none

  __device__ float Capped(float score) const { return cap == 0 ? score : cap * Tanh(score / cap); }
  // d of a capped score by that of the score.
  __device__ float CapSlope(float capped) const { return cap == 0 ? 1.0f : (1 - capped / cap) * (1 + capped / cap); }
  __device__ int64_t KvHead(int64_t h) const { return h / (heads / kv_heads); }
  // The first key that query t sees: never outside [0, t], whatever the data says.
  __device__ int64_t FirstSeen(const int* document_start_T, int64_t t) const {
    int64_t first = document_start_T[t];
    if (window > 0 && first < t - window + 1) first = t - window + 1;
    return first < 0 ? 0 : first > t ? t : first;
  }
};

// Whether these kernels compute all that the node asks for: no sink, no last keys, no ALiBi, values as wide as keys.
inline bool IsPlain(const Attributes& a, const TensorType& k, const TensorType& v) {
  return !a.Flag("sink") && !a.Flag("last") && !a.Has(AttentionSlopes::kKey) && k == v;
}

inline Heads HeadsOf(const TensorType& q, const Attributes& a) {
  return {.tokens = q.shape[0],
          .heads = a.Int("heads"),
          .kv_heads = a.Int("kv_heads"),
          .E = q.shape[1] / a.Int("heads"),
          .window = a.IntOr("window", 0),
          .scale = static_cast<float>(a.Double("scale")),
          .cap = static_cast<float>(a.DoubleOr("softcap", 0))};
}

// R: the type of the outputs; T, or f32 if they go on to other steps. They may overwrite the earlier ones.
template <class T, class R>
struct ForwardOperands {
  const T *q, *k, *v;
  const int* document_start_T;
  R* o;
  float* lse_TH;
  const float *o_before, *lse_before;  // of the keys of earlier steps, or nullptr
};
// `acc`: continues from the results of the steps before.
template <class T, class R>
ForwardOperands<T, R> ForwardOperandsOf(const KernelArgs& args, bool acc) {
  return {.q = In<const T>(args, 0),
          .k = In<const T>(args, 1),
          .v = In<const T>(args, 2),
          .document_start_T = In<const int>(args, 3),
          .o = Out<R>(args, 0),
          .lse_TH = Out<float>(args, 1),
          .o_before = acc ? In<const float>(args, 4) : nullptr,
          .lse_before = acc ? In<const float>(args, 5) : nullptr};
}

template <class T, class R>
struct BackwardOperands {
  const T *d_o, *q, *k, *v, *o;
  const float* lse_TH;
  float* delta_TH;  // at the beginning of the workspace (GpuAttentionScratch)
  const int* document_start_T;
  R *d_q, *d_k, *d_v;
  const float* d_q_before;  // of earlier steps, or nullptr
};
template <class T, class R>
BackwardOperands<T, R> BackwardOperandsOf(const KernelArgs& args, bool acc) {
  return {.d_o = In<const T>(args, 0),
          .q = In<const T>(args, 1),
          .k = In<const T>(args, 2),
          .v = In<const T>(args, 3),
          .o = In<const T>(args, 4),
          .lse_TH = In<const float>(args, 5),
          .delta_TH = reinterpret_cast<float*>(args.workspace),
          .document_start_T = In<const int>(args, 6),
          .d_q = Out<R>(args, 0),
          .d_k = Out<R>(args, 1),
          .d_v = Out<R>(args, 2),
          .d_q_before = acc ? In<const float>(args, 7) : nullptr};
}

// delta_TH of attention's backward: the sum over a head of d_o o.
template <class T>
Status FindDeltas(const T* d_o, const T* o, const Heads& heads, float* delta_TH, gpuStream_t stream);

// y[i] = the sum of the `parts` arrays of n elements from x on, in order. REQUIRES: n is a multiple of 4.
template <class R>
Status AddParts(const float* x, int64_t parts, int64_t n, R* y, gpuStream_t stream);

// d_k and d_v on matrix units, in as many parts as GpuAttentionScratch says. launch(operands, parts): what part p makes
// lies p arrays after the operands' d_k and d_v.
template <class R, class Launch>
Status MakeKeyGradients(const KernelArgs& args, const BackwardOperands<bf16, R>& x, const Heads& heads,
                        gpuStream_t stream, const Launch& launch) {
  const auto scratch = GpuAttentionScratchOf(DType::kBF16, heads.tokens, heads.heads, heads.kv_heads, heads.E);
  if (scratch.parts == 1) return launch(x, 1u);
  const auto sums = [&](Bytes at) { return reinterpret_cast<float*>(args.workspace + at.v); };
  const BackwardOperands<bf16, float> in_parts = {.d_o = x.d_o,
                                                  .q = x.q,
                                                  .k = x.k,
                                                  .v = x.v,
                                                  .o = x.o,
                                                  .lse_TH = x.lse_TH,
                                                  .delta_TH = x.delta_TH,
                                                  .document_start_T = x.document_start_T,
                                                  .d_q = nullptr,
                                                  .d_k = sums(scratch.d_k),
                                                  .d_v = sums(scratch.d_v),
                                                  .d_q_before = nullptr};
  TEMPER_RETURN_IF_ERROR(launch(in_parts, static_cast<unsigned>(scratch.parts)));
  const int64_t n = heads.tokens * heads.kv_heads * heads.E;
  TEMPER_RETURN_IF_ERROR(AddParts(in_parts.d_k, scratch.parts, n, x.d_k, stream));
  return AddParts(in_parts.d_v, scratch.parts, n, x.d_v, stream);
}

}  // namespace temper::gpu
