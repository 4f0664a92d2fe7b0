// attention_backward, with p = exp(score - lse) made anew from lse, delta = d_o . o:  d_s = p (d_p - delta),
// d_p = d_o . v;  d_q = scale sum d_s k,  d_k = scale sum d_s q,  d_v = sum p d_o.
//
// Three kernels: delta; d_q by tiles of queries; d_k and d_v by tiles of keys, whose block goes through the heads that
// share them and their queries in order. No two blocks write the same element, so there is nothing to add atomically:
// the same bits, run after run. Floor: 10 flops per query, visible key and element; scores are made twice (14 here).
#include "backend/gpu/attention_matrix.h"

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

template <class T>
struct Operands {
  const T *d_o, *q, *k, *v;
  const float *lse_TH, *delta_TH;
  const int* document_start_T;
};

template <class T, class S>
__global__ void QueryGradients(Operands<T> x, Heads heads, T* d_q) {
  TEMPER_SHARED(float, q_tile, S::kElements);
  TEMPER_SHARED(float, d_o_tile, S::kElements);
  TEMPER_SHARED(float, k_tile, S::kElements);
  TEMPER_SHARED(float, v_tile, S::kElements);
  TEMPER_SHARED(float, d_s_tile, S::kScores);
  TEMPER_SHARED(int, first_seen, S::kRows);
  const int row = static_cast<int>(threadIdx.x) / S::kLanes, lane = static_cast<int>(threadIdx.x) % S::kLanes;
  const int64_t q_begin = int64_t{blockIdx.x} * S::kRows, h = blockIdx.y, E = heads.E;
  const int64_t q_end = q_begin + S::kRows < heads.tokens ? q_begin + S::kRows : heads.tokens;
  const int64_t t = q_begin + row, kv_head = heads.KvHead(h);
  const bool valid = t < q_end;
  const int64_t first = valid ? heads.FirstSeen(x.document_start_T, t) : q_end;
  const float lse = valid ? x.lse_TH[t * heads.heads + h] : 0, delta = valid ? x.delta_TH[t * heads.heads + h] : 0;
  if (lane == 0) first_seen[row] = static_cast<int>(first);
  LoadTile<S>(x.q, q_begin, q_end, heads.heads, h, E, q_tile);
  LoadTile<S>(x.d_o, q_begin, q_end, heads.heads, h, E, d_o_tile);
  __syncthreads();
  int64_t k_begin = q_end;
  for (int r = 0; r < S::kRows; ++r) k_begin = first_seen[r] < k_begin ? first_seen[r] : k_begin;

  float out[S::kColumns] = {};
  for (; k_begin < q_end; k_begin += S::kRows) {
    LoadTile<S>(x.k, k_begin, q_end, heads.kv_heads, kv_head, E, k_tile);
    LoadTile<S>(x.v, k_begin, q_end, heads.kv_heads, kv_head, E, v_tile);
    __syncthreads();
    for (int j = 0; j < S::kPairs; ++j) {
      const int key = lane + S::kLanes * j;
      const int64_t s = k_begin + key;
      if (key >= S::kRows) break;
      float d_s = 0;
      if (valid && s >= first && s <= t) {
        const float p = Exp(heads.scale * Dot<S>(q_tile, row, k_tile, key, E) - lse);
        d_s = p * (Dot<S>(d_o_tile, row, v_tile, key, E) - delta);
      }
      d_s_tile[row * S::kScoreStride + key] = d_s;
    }
    __syncthreads();
    AddWeighted<S>(d_s_tile, row, lane, k_tile, out);
    __syncthreads();
  }
  if (valid) StoreRow<S>(out, heads.scale, t, heads.heads, h, E, lane, d_q);
}

template <class T, class S>
__global__ void KeyGradients(Operands<T> x, Heads heads, T* d_k, T* d_v) {
  TEMPER_SHARED(float, q_tile, S::kElements);
  TEMPER_SHARED(float, d_o_tile, S::kElements);
  TEMPER_SHARED(float, k_tile, S::kElements);
  TEMPER_SHARED(float, v_tile, S::kElements);
  TEMPER_SHARED(float, p_tile, S::kScores);  // [key, query], as d_s
  TEMPER_SHARED(float, d_s_tile, S::kScores);
  const int row = static_cast<int>(threadIdx.x) / S::kLanes, lane = static_cast<int>(threadIdx.x) % S::kLanes;
  const int64_t k_begin = int64_t{blockIdx.x} * S::kRows, kv_head = blockIdx.y, E = heads.E, T_ = heads.tokens;
  const int64_t k_end = k_begin + S::kRows < T_ ? k_begin + S::kRows : T_;
  const int64_t s = k_begin + row, group = heads.heads / heads.kv_heads;
  LoadTile<S>(x.k, k_begin, k_end, heads.kv_heads, kv_head, E, k_tile);
  LoadTile<S>(x.v, k_begin, k_end, heads.kv_heads, kv_head, E, v_tile);

  float out_k[S::kColumns] = {}, out_v[S::kColumns] = {};
  for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    // Later queries see no earlier keys: the first tile whose first query sees none of these is beyond the last.
    for (int64_t q_begin = k_begin; q_begin < T_ && heads.FirstSeen(x.document_start_T, q_begin) < k_end;
         q_begin += S::kRows) {
      LoadTile<S>(x.q, q_begin, T_, heads.heads, h, E, q_tile);
      LoadTile<S>(x.d_o, q_begin, T_, heads.heads, h, E, d_o_tile);
      __syncthreads();
      for (int j = 0; j < S::kPairs; ++j) {
        const int query = lane + S::kLanes * j;
        const int64_t t = q_begin + query;
        if (query >= S::kRows) break;
        float p = 0, d_s = 0;
        if (t < T_ && s <= t && s >= heads.FirstSeen(x.document_start_T, t)) {
          p = Exp(heads.scale * Dot<S>(q_tile, query, k_tile, row, E) - x.lse_TH[t * heads.heads + h]);
          d_s = p * (Dot<S>(d_o_tile, query, v_tile, row, E) - x.delta_TH[t * heads.heads + h]);
        }
        p_tile[row * S::kScoreStride + query] = p;
        d_s_tile[row * S::kScoreStride + query] = d_s;
      }
      __syncthreads();
      AddWeighted<S>(d_s_tile, row, lane, q_tile, out_k);
      AddWeighted<S>(p_tile, row, lane, d_o_tile, out_v);
      __syncthreads();
    }
  }
  if (s >= k_end) return;
  StoreRow<S>(out_k, heads.scale, s, heads.kv_heads, kv_head, E, lane, d_k);
  StoreRow<S>(out_v, 1, s, heads.kv_heads, kv_head, E, lane, d_v);
}

}  // namespace

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
  const Heads heads = HeadsOf(spec.inputs[1], spec.attributes);
  TEMPER_CHECK(spec.workspace.v >= heads.tokens * heads.heads * 4) << spec.workspace.v << " bytes for delta";
  if (spec.inputs[1].dtype == DType::kBF16) {
    if (auto kernel = MakeMatrixAttentionBackward(heads, context)) return kernel;
  }
  return DispatchAttention(spec.inputs[1], heads.E, [&]<class T, class S>() -> std::unique_ptr<Kernel> {
    return MakeKernel([=, stream = context.stream](const KernelArgs& args) {
      if (heads.tokens == 0) return OkStatus();
      float* const delta = reinterpret_cast<float*>(args.workspace);
      const Operands<T> x = {In<T>(args, 0),     In<T>(args, 1), In<T>(args, 2),        In<T>(args, 3),
                             In<float>(args, 5), delta,          In<const int>(args, 6)};
      const auto tiles = static_cast<unsigned>((heads.tokens + S::kRows - 1) / S::kRows);
      constexpr unsigned kThreads = kBlockThreads;
      TEMPER_RETURN_IF_ERROR(FindDeltas<T>(x.d_o, In<T>(args, 4), heads, delta, stream));
      TEMPER_RETURN_IF_ERROR(TEMPER_LAUNCH((QueryGradients<T, S>), (gpuDim3{tiles, static_cast<unsigned>(heads.heads)}),
                                           kThreads, stream, x, heads, Out<T>(args, 0)));
      return TEMPER_LAUNCH((KeyGradients<T, S>), (gpuDim3{tiles, static_cast<unsigned>(heads.kv_heads)}), kThreads,
                           stream, x, heads, Out<T>(args, 1), Out<T>(args, 2));
    });
  });
}

}  // namespace temper::gpu
