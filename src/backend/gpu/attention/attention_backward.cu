// attention_backward: delta = d_o . o, then d_q by tiles of queries, then d_k and d_v by tiles of keys
// (attention_tiling.h), in bf16 by matrix units where there are some, and by a library where one is faster.
#include "backend/gpu/attention/attention_matrix.h"
#include "backend/gpu/attention/attention_tiling.h"
#include "backend/gpu/attention/attention_warpgroup.h"
#include "backend/gpu/attention/packed_attention_kernel.h"

namespace temper::gpu {
namespace {

constexpr int kDeltaLanes = 16;  // threads that share a row of d_o, 8 bf16 each at a head's usual 128

template <class T, int kCount>
__global__ void Deltas(const T* d_o, const T* o, int64_t rows, int64_t E, float* delta_TH) {
  const int64_t row = (int64_t{blockIdx.x} * kBlockThreads + threadIdx.x) / kDeltaLanes;
  float sum = 0;
  if (row < rows) {
    for (int64_t e = threadIdx.x % kDeltaLanes * kCount; e < E; e += kDeltaLanes * kCount) {
      float a[kCount], b[kCount];
      Load(d_o + row * E + e, a);
      Load(o + row * E + e, b);
      for (int i = 0; i < kCount; ++i) sum = Fma(a[i], b[i], sum);
    }
  }
  for (int mask = kDeltaLanes / 2; mask > 0; mask /= 2) sum += ShuffleXor(sum, mask);
  if (row < rows && threadIdx.x % kDeltaLanes == 0) delta_TH[row] = sum;
}

template <class R>
struct PartsSum {
  const float* x;
  int64_t parts, n;
  R* y;
  template <int kCount>
  __device__ void Run(int64_t i) const {
    float sum[kCount];
    Load(x + i, sum);
    for (int64_t part = 1; part < parts; ++part) {
      float next[kCount];
      Load(x + part * n + i, next);
      for (int k = 0; k < kCount; ++k) sum[k] += next[k];
    }
    Store(y + i, sum);
  }
};

}  // namespace

template <class R>
Status AddParts(const float* x, int64_t parts, int64_t n, R* y, gpuStream_t stream) {
  return Map<4>(n, PartsSum<R>{x, parts, n, y}, stream);
}
template Status AddParts(const float*, int64_t, int64_t, bf16*, gpuStream_t);
template Status AddParts(const float*, int64_t, int64_t, float*, gpuStream_t);

template <class T>
Status FindDeltas(const T* d_o, const T* o, const Heads& heads, float* delta_TH, gpuStream_t stream) {
  const int64_t rows = heads.tokens * heads.heads;
  const unsigned blocks = BlocksFor(rows * kDeltaLanes);
  constexpr unsigned kThreads = kBlockThreads;
  if (heads.E % kPack<T> != 0) {
    return TEMPER_LAUNCH((Deltas<T, 1>), blocks, kThreads, stream, d_o, o, rows, heads.E, delta_TH);
  }
  return TEMPER_LAUNCH((Deltas<T, kPack<T>>), blocks, kThreads, stream, d_o, o, rows, heads.E, delta_TH);
}
template Status FindDeltas(const float*, const float*, const Heads&, float*, gpuStream_t);
template Status FindDeltas(const bf16*, const bf16*, const Heads&, float*, gpuStream_t);

std::unique_ptr<Kernel> MakeAttentionBackward(const KernelSpec& spec, const Context& context) {
  if (!IsPlain(spec.attributes, spec.inputs[2], spec.inputs[3])) return nullptr;
  const Heads heads = HeadsOf(spec.inputs[1], spec.attributes);
  TEMPER_CHECK(spec.workspace >= GpuAttentionScratchOf(spec.inputs[1], spec.attributes).bytes) << spec.workspace.v;
  if (spec.inputs[1].dtype == DType::kBF16) {
    if (auto kernel = MakeWarpgroupAttentionBackward<bf16>(heads, Causal(), /*acc=*/false, context)) return kernel;
    if (auto kernel = MakeMatrixAttentionBackward<bf16>(heads, Causal(), /*acc=*/false, context)) {
      return WithPackedAttention(spec, context, std::move(kernel));
    }
  }
  return DispatchAttention(spec.inputs[1], heads.E, [&]<class T, class S>() -> std::unique_ptr<Kernel> {
    return MakeKernel([=, stream = context.stream](const KernelArgs& args) {
      return LaunchAttentionBackward<T, T, S>(args, heads, Causal(), /*acc=*/false, stream);
    });
  });
}

}  // namespace temper::gpu
