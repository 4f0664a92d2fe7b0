// attention_cached: new keys and values go to their slots' pages of the cache, a row for each token (with `stored`
// another block has put them there), then each new token attends to what is there. A block per new token and head
// passes over the keys, as attention.cu does, a key per thread. Floor: bytes of the rows of the cache that are seen,
// once per head of a group here where once per group would do.
#include <array>

#include "backend/gpu/attention/attention_operands.h"
#include "backend/gpu/copy.h"
#include "backend/gpu/faults.h"
#include "backend/gpu/launch.h"
#include "graph/ops/attention_cache.h"

namespace temper::gpu {
namespace {

constexpr int kKeys = kBlockThreads;             // at a time
constexpr int64_t kMostHeadDim = kBlockThreads;  // an output column per thread

struct CachedHeads {
  int64_t tokens, heads, kv_heads, E, window;
  float scale, cap;  // cap 0: none
  int64_t slots, slot_pages, pages, page;
  int64_t v_columns;  // of a row of the cache of values, for each head
};

// Where the step's tokens are: what cannot be trusted of the data.
struct CachedPlaces {
  const int *slot_S, *position_S, *page_table_NP;

  // Whether token i stands for something, and its place exists.
  __device__ bool IsThere(const CachedHeads& h, int64_t i) const {
    return slot_S[i] >= 0 && slot_S[i] < h.slots && position_S[i] >= 0 && position_S[i] < h.slot_pages * h.page;
  }
  // The row of a place in the slot of token i, -1 where its page does not exist.
  __device__ int64_t RowOf(const CachedHeads& h, int64_t i, int64_t place) const {
    const int64_t page = page_table_NP[slot_S[i] * h.slot_pages + place / h.page];
    return page < 0 || page >= h.pages ? -1 : page * h.page + place % h.page;
  }
};

template <class T>
__global__ void AppendRows(const T* rows, CachedPlaces places, CachedHeads heads, int64_t columns, T* cache,
                           int64_t* fault) {
  const int64_t at = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x, width = heads.kv_heads * heads.E;
  const int64_t i = at / width, head = at % width / heads.E, e = at % heads.E;
  if (i >= heads.tokens || places.slot_S[i] < 0) return;
  const int64_t row = places.IsThere(heads, i) ? places.RowOf(heads, i, places.position_S[i]) : -1;
  if (row < 0) {
    if (at % width == 0) *fault = 1;
    return;
  }
  cache[(row * heads.kv_heads + head) * columns + e] = rows[at];
}

template <class T>
__global__ void AttendToCache(const T* q, const T* k, const T* v, CachedPlaces places, CachedHeads heads, T* o) {
  TEMPER_SHARED(float, scratch, kMostWarps);
  TEMPER_SHARED(float, query, kMostHeadDim);
  TEMPER_SHARED(float, p_tile, kKeys);
  const int64_t i = blockIdx.x, h = blockIdx.y, E = heads.E, thread = threadIdx.x;
  const int64_t at_o = (i * heads.heads + h) * E + thread;
  if (!places.IsThere(heads, i)) {  // all threads of the block
    if (thread < E) Put(o + at_o, 0.0f);
    return;
  }
  const int64_t last = places.position_S[i];
  const int64_t first = heads.window > 0 && last >= heads.window ? last - heads.window + 1 : 0;
  const int64_t kv = h / (heads.heads / heads.kv_heads);
  if (thread < E) query[thread] = Get(q + at_o);
  __syncthreads();
  float largest = -INFINITY, sum = 0, out = 0;
  for (int64_t begin = first; begin <= last; begin += kKeys) {
    const int64_t s = begin + thread, row = s <= last ? places.RowOf(heads, i, s) : -1;
    float score = -INFINITY;
    if (row >= 0) {
      float dot = 0;
      for (int64_t e = 0; e < E; ++e) dot = Fma(query[e], Get(k + (row * heads.kv_heads + kv) * E + e), dot);
      score = heads.scale * dot;
      if (heads.cap != 0) score = heads.cap * Tanh(score / heads.cap);
    }
    const float before = largest;
    largest = Max()(largest, ReduceBlock<Max, float>(score, scratch));
    const float rescale = Exp(before - largest), p = row >= 0 ? Exp(score - largest) : 0;
    p_tile[thread] = p;
    sum = Fma(sum, rescale, ReduceBlock<Sum, float>(p, scratch));  // its barriers stand between p_tile's two uses
    out *= rescale;
    const int64_t keys = last - begin + 1 < kKeys ? last - begin + 1 : kKeys;
    if (thread < E) {
      for (int64_t j = 0; j < keys; ++j) {
        const int64_t at = places.RowOf(heads, i, begin + j);
        if (at >= 0) out = Fma(p_tile[j], Get(v + (at * heads.kv_heads + kv) * heads.v_columns + thread), out);
      }
    }
    __syncthreads();  // the next keys overwrite p_tile
  }
  if (thread < E) Put(o + at_o, out / sum);
}

}  // namespace

std::unique_ptr<Kernel> MakeAttentionCached(const KernelSpec& spec, const Context& context) {
  const Attributes& a = spec.attributes;
  if (!IsPlain(a, spec.inputs[1], spec.inputs[2])) return nullptr;
  const int64_t page = a.Int("page"), E = spec.inputs[0].shape[1] / a.Int("heads");
  const CachedHeads heads = {.tokens = spec.inputs[0].shape[0],
                             .heads = a.Int("heads"),
                             .kv_heads = a.Int("kv_heads"),
                             .E = E,
                             .window = a.IntOr("window", 0),
                             .scale = static_cast<float>(a.Double("scale")),
                             .cap = static_cast<float>(a.DoubleOr("softcap", 0)),
                             .slots = spec.inputs[7].shape[0],
                             .slot_pages = spec.inputs[7].shape[1],
                             .pages = spec.inputs[3].shape[0] / page,
                             .page = page,
                             .v_columns = CachedWidth(E)};
  if (!IsCompute(spec.inputs[0]) || heads.E > kMostHeadDim) return nullptr;
  Faults::Word fault = context.faults->Register([heads](int64_t) {
    return "a token of a step has no place in a cache of " + std::to_string(heads.slots) + " slots of " +
           std::to_string(heads.slot_pages * heads.page) + " tokens";
  });
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    return MakeKernel([heads, bytes = std::array{spec.inputs[3].bytes(), spec.inputs[4].bytes()},
                       stored = a.Flag("stored"), stream = context.stream,
                       fault = std::move(fault)](const KernelArgs& args) {
      const int64_t n = heads.tokens * heads.kv_heads * heads.E;
      const CachedPlaces places = {In<const int>(args, 5), In<const int>(args, 6), In<const int>(args, 7)};
      for (int side = 0; side < 2 && !stored; ++side) {  // keys, values
        TEMPER_RETURN_IF_ERROR(
            Copy(args.inputs[3 + side], args.outputs[1 + side], bytes[static_cast<size_t>(side)], stream));
        if (n == 0) continue;
        TEMPER_RETURN_IF_ERROR(
            TEMPER_LAUNCH((AppendRows<T>), BlocksFor(n), unsigned{kBlockThreads}, stream, In<T>(args, 1 + side), places,
                          heads, side == 0 ? heads.E : heads.v_columns, Out<T>(args, 1 + side), fault.get()));
      }
      if (n == 0) return OkStatus();
      const gpuDim3 blocks = {static_cast<unsigned>(heads.tokens), static_cast<unsigned>(heads.heads)};
      return TEMPER_LAUNCH((AttendToCache<T>), blocks, unsigned{kBlockThreads}, stream, In<T>(args, 0),
                           stored ? In<T>(args, 3) : Out<T>(args, 1), stored ? In<T>(args, 4) : Out<T>(args, 2), places,
                           heads, Out<T>(args, 0));
    });
  });
}

}  // namespace temper::gpu
