// attention_cached: new keys and values go behind those of the cache, then each new token attends to what is there. A
// block per new token and head passes over the keys, as attention.cu does, a key per thread. Floor: bytes of the rows
// of the cache that are seen, once per head of a group here where once per group would do.
#include "backend/gpu/copy.h"
#include "backend/gpu/faults.h"
#include "backend/gpu/launch.h"

namespace temper::gpu {
namespace {

constexpr int kKeys = kBlockThreads;             // at a time
constexpr int64_t kMostHeadDim = kBlockThreads;  // an output column per thread

struct CachedHeads {
  int64_t tokens, capacity, heads, kv_heads, E, window;
  float scale, cap;  // cap 0: none
  // Whether the new tokens fit behind `length` earlier ones: what cannot be trusted of the data.
  __device__ bool Fits(int64_t length) const { return length >= 0 && length <= capacity - tokens; }
};

template <class T>
__global__ void AppendRows(const T* rows, const int* length_1, CachedHeads heads, T* cache, int64_t* fault) {
  const int64_t i = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x, length = *length_1;
  const int64_t width = heads.kv_heads * heads.E;
  if (!heads.Fits(length)) {
    if (i == 0) *fault = 1;
    return;
  }
  if (i < heads.tokens * width) cache[length * width + i] = rows[i];
}

template <class T>
__global__ void AttendToCache(const T* q, const T* k, const T* v, const int* length_1, CachedHeads heads, T* o) {
  TEMPER_SHARED(float, scratch, kMostWarps);
  TEMPER_SHARED(float, query, kMostHeadDim);
  TEMPER_SHARED(float, p_tile, kKeys);
  const int64_t i = blockIdx.x, h = blockIdx.y, length = *length_1, E = heads.E, thread = threadIdx.x;
  if (!heads.Fits(length)) return;  // all threads of all blocks
  const int64_t last = length + i, stride = heads.kv_heads * E;
  const int64_t first = heads.window > 0 && last >= heads.window ? last - heads.window + 1 : 0;
  const int64_t head_at = h / (heads.heads / heads.kv_heads) * E;
  if (thread < E) query[thread] = Get(q + (i * heads.heads + h) * E + thread);
  __syncthreads();
  float largest = -INFINITY, sum = 0, out = 0;
  for (int64_t begin = first; begin <= last; begin += kKeys) {
    const int64_t s = begin + thread;
    float score = -INFINITY;
    if (s <= last) {
      float dot = 0;
      for (int64_t e = 0; e < E; ++e) dot = Fma(query[e], Get(k + s * stride + head_at + e), dot);
      score = heads.scale * dot;
      if (heads.cap != 0) score = heads.cap * Tanh(score / heads.cap);
    }
    const float before = largest;
    largest = Max()(largest, ReduceBlock<Max, float>(score, scratch));
    const float rescale = Exp(before - largest), p = s <= last ? Exp(score - largest) : 0;
    p_tile[thread] = p;
    sum = Fma(sum, rescale, ReduceBlock<Sum, float>(p, scratch));  // its barriers stand between p_tile's two uses
    out *= rescale;
    const int64_t keys = last - begin + 1 < kKeys ? last - begin + 1 : kKeys;
    if (thread < E) {
      for (int64_t j = 0; j < keys; ++j) out = Fma(p_tile[j], Get(v + (begin + j) * stride + head_at + thread), out);
    }
    __syncthreads();  // the next keys overwrite p_tile
  }
  if (thread < E) Put(o + (i * heads.heads + h) * E + thread, out / sum);
}

}  // namespace

std::unique_ptr<Kernel> MakeAttentionCached(const KernelSpec& spec, const Context& context) {
  const Attributes& a = spec.attributes;
  if (a.Flag("sink") || !(spec.inputs[1] == spec.inputs[2])) return nullptr;
  const CachedHeads heads = {.tokens = spec.inputs[0].shape[0],
                             .capacity = spec.inputs[3].shape[0],
                             .heads = a.Int("heads"),
                             .kv_heads = a.Int("kv_heads"),
                             .E = spec.inputs[0].shape[1] / a.Int("heads"),
                             .window = a.IntOr("window", 0),
                             .scale = static_cast<float>(a.Double("scale")),
                             .cap = static_cast<float>(a.DoubleOr("softcap", 0))};
  if (!IsCompute(spec.inputs[0]) || heads.E > kMostHeadDim) return nullptr;
  Faults::Word fault = context.faults->Register([heads](int64_t) {
    return std::to_string(heads.tokens) + " new tokens do not fit after those in a cache of " +
           std::to_string(heads.capacity);
  });
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const Bytes cache_bytes = spec.inputs[3].bytes();
    return MakeKernel([heads, cache_bytes, stream = context.stream, fault = std::move(fault)](const KernelArgs& args) {
      const int64_t n = heads.tokens * heads.kv_heads * heads.E;
      const int* const length = In<const int>(args, 5);
      for (int side = 0; side < 2; ++side) {  // keys, values
        TEMPER_RETURN_IF_ERROR(Copy(args.inputs[3 + side], args.outputs[1 + side], cache_bytes, stream));
        if (n == 0) continue;
        TEMPER_RETURN_IF_ERROR(TEMPER_LAUNCH((AppendRows<T>), BlocksFor(n), unsigned{kBlockThreads}, stream,
                                             In<T>(args, 1 + side), length, heads, Out<T>(args, 1 + side),
                                             fault.get()));
      }
      if (n == 0) return OkStatus();
      const gpuDim3 blocks = {static_cast<unsigned>(heads.tokens), static_cast<unsigned>(heads.heads)};
      return TEMPER_LAUNCH((AttendToCache<T>), blocks, unsigned{kBlockThreads}, stream, In<T>(args, 0), Out<T>(args, 1),
                           Out<T>(args, 2), length, heads, Out<T>(args, 0));
    });
  });
}

}  // namespace temper::gpu
