// The tiling of attention and of the steps of a ring without matrix units, and that of their backwards. No two blocks
// write the same element, so nothing needs atomic addition: the same bits, run after run. Floor: 4 flops per query,
// visible key and element; backward 10, 14 here because scores are made twice.
#pragma once

#include "backend/gpu/attention/attention_sees.h"
#include "backend/gpu/attention/attention_tile.h"

namespace temper::gpu {

// A block per tile of queries and head passes over the keys that its queries see, keeping the running maximum, sum and
// output of each (Dao 2023, FlashAttention-2). The result of the steps before is one more key, which scores their lse
// and has their o as value.
template <class T, class R, class S, class Sees>
__global__ void AttentionTiles(ForwardOperands<T, R> x, Heads heads, Sees sees, int64_t* fault) {
  TEMPER_SHARED(float, q_tile, S::kElements);
  TEMPER_SHARED(float, kv_tile, S::kElements);  // of keys, then of values
  TEMPER_SHARED(float, p_tile, S::kScores);
  const int row = static_cast<int>(threadIdx.x) / S::kLanes, lane = static_cast<int>(threadIdx.x) % S::kLanes;
  const int64_t q_begin = int64_t{blockIdx.x} * S::kRows, h = blockIdx.y, E = heads.E;
  const int64_t q_end = q_begin + S::kRows < heads.tokens ? q_begin + S::kRows : heads.tokens;
  const int64_t t = q_begin + row, kv_head = heads.KvHead(h);
  const bool valid = t < q_end;
  const int64_t first = valid ? sees.First(heads, x.document_start_T, t) : 0;
  const int64_t end = valid ? sees.End(t) : 0;
  if (lane == 0 && valid && h == 0) {
    const int start = x.document_start_T[t];
    if (start < 0 || start > sees.PlaceOf(t) || (t > 0 && start < x.document_start_T[t - 1])) *fault = 1 + t;
  }
  LoadTile<S>(x.q, q_begin, q_end, heads.heads, h, E, q_tile);
  const int64_t k_end = sees.End(q_end - 1);

  const bool before_it = valid && x.lse_before != nullptr;
  float largest = before_it ? x.lse_before[t * heads.heads + h] : -INFINITY, sum = before_it ? 1 : 0;
  float out[S::kColumns] = {};
  for (int c = 0; c < S::kColumns && before_it; ++c) {
    const int e = lane + S::kLanes * c;
    if (e < E) out[c] = x.o_before[(t * heads.heads + h) * E + e];
  }
  for (int64_t k_begin = sees.First(heads, x.document_start_T, q_begin); k_begin < k_end; k_begin += S::kRows) {
    LoadTile<S>(x.k, k_begin, k_end, heads.kv_heads, kv_head, E, kv_tile);
    __syncthreads();
    float score[S::kPairs], here = -INFINITY;
    for (int j = 0; j < S::kPairs; ++j) {
      const int key = lane + S::kLanes * j;
      const int64_t s = k_begin + key;
      const bool seen = key < S::kRows && s >= first && s < end;
      score[j] = seen ? heads.Capped(heads.scale * Dot<S>(q_tile, row, kv_tile, key, E)) : -INFINITY;
      here = Max()(here, score[j]);
    }
    const float before = largest;
    largest = Max()(largest, ReduceRow<S, Max>(here));
    // No key of this query yet: nothing to scale, and no finite argument for exp.
    const bool any = largest > -INFINITY;
    const float rescale = any ? Exp(before - largest) : 1;
    float sum_here = 0;
    for (int j = 0; j < S::kPairs; ++j) {
      const float p = score[j] > -INFINITY ? Exp(score[j] - largest) : 0;
      if (lane + S::kLanes * j < S::kRows) p_tile[row * S::kScoreStride + lane + S::kLanes * j] = p;
      sum_here += p;
    }
    sum = Fma(sum, rescale, ReduceRow<S, Sum>(sum_here));
    __syncthreads();
    LoadTile<S>(x.v, k_begin, k_end, heads.kv_heads, kv_head, E, kv_tile);
    __syncthreads();
    for (int c = 0; c < S::kColumns; ++c) out[c] *= rescale;
    AddWeighted<S>(p_tile, row, lane, kv_tile, out);
    __syncthreads();  // the next keys overwrite the values
  }
  if (!valid) return;
  StoreRow<S>(out, 1 / sum, t, heads.heads, h, E, lane, x.o);
  if (lane == 0) x.lse_TH[t * heads.heads + h] = largest + Log(sum);
}

// `args`: of attention and attention_step (graph/op_list.inc). `acc`: continues from the results of the steps before.
template <class T, class R, class S, class Sees>
Status LaunchAttention(const KernelArgs& args, const Heads& heads, const Sees& sees, bool acc, int64_t* fault,
                       gpuStream_t stream) {
  if (heads.tokens == 0) return OkStatus();
  const auto x = ForwardOperandsOf<T, R>(args, acc);
  const auto tiles = static_cast<unsigned>((heads.tokens + S::kRows - 1) / S::kRows);
  return TEMPER_LAUNCH((AttentionTiles<T, R, S, Sees>), (gpuDim3{tiles, static_cast<unsigned>(heads.heads)}),
                       unsigned{kBlockThreads}, stream, x, heads, sees, fault);
}

// d_q = scale sum d_s k, by tiles of queries, with p = exp(score - lse) recomputed, d_s = p (d_o . v - delta), times
// the slope of the cap where there is one.
template <class T, class R, class S, class Sees>
__global__ void QueryGradients(BackwardOperands<T, R> x, Heads heads, Sees sees) {
  TEMPER_SHARED(float, q_tile, S::kElements);
  TEMPER_SHARED(float, d_o_tile, S::kElements);
  TEMPER_SHARED(float, k_tile, S::kElements);
  TEMPER_SHARED(float, v_tile, S::kElements);
  TEMPER_SHARED(float, d_s_tile, S::kScores);
  const int row = static_cast<int>(threadIdx.x) / S::kLanes, lane = static_cast<int>(threadIdx.x) % S::kLanes;
  const int64_t q_begin = int64_t{blockIdx.x} * S::kRows, h = blockIdx.y, E = heads.E;
  const int64_t q_end = q_begin + S::kRows < heads.tokens ? q_begin + S::kRows : heads.tokens;
  const int64_t t = q_begin + row, kv_head = heads.KvHead(h);
  const bool valid = t < q_end;
  const int64_t first = valid ? sees.First(heads, x.document_start_T, t) : 0;
  const int64_t end = valid ? sees.End(t) : 0;
  const float lse = valid ? x.lse_TH[t * heads.heads + h] : 0, delta = valid ? x.delta_TH[t * heads.heads + h] : 0;
  LoadTile<S>(x.q, q_begin, q_end, heads.heads, h, E, q_tile);
  LoadTile<S>(x.d_o, q_begin, q_end, heads.heads, h, E, d_o_tile);
  const int64_t k_end = sees.End(q_end - 1);

  float out[S::kColumns] = {};
  for (int64_t k_begin = sees.First(heads, x.document_start_T, q_begin); k_begin < k_end; k_begin += S::kRows) {
    LoadTile<S>(x.k, k_begin, k_end, heads.kv_heads, kv_head, E, k_tile);
    LoadTile<S>(x.v, k_begin, k_end, heads.kv_heads, kv_head, E, v_tile);
    __syncthreads();
    for (int j = 0; j < S::kPairs; ++j) {
      const int key = lane + S::kLanes * j;
      const int64_t s = k_begin + key;
      if (key >= S::kRows) break;
      float d_s = 0;
      if (s >= first && s < end) {
        const float score = heads.Capped(heads.scale * Dot<S>(q_tile, row, k_tile, key, E)), p = Exp(score - lse);
        d_s = p * (Dot<S>(d_o_tile, row, v_tile, key, E) - delta) * heads.CapSlope(score);
      }
      d_s_tile[row * S::kScoreStride + key] = d_s;
    }
    __syncthreads();
    AddWeighted<S>(d_s_tile, row, lane, k_tile, out);
    __syncthreads();
  }
  if (!valid) return;
  for (int c = 0; c < S::kColumns; ++c) {
    const int e = lane + S::kLanes * c;
    const int64_t at = (t * heads.heads + h) * E + e;
    if (e < E)
      Put(x.d_q + at, x.d_q_before == nullptr ? out[c] * heads.scale : Fma(out[c], heads.scale, x.d_q_before[at]));
  }
}

// d_k = scale sum d_s q and d_v = sum p d_o, by tiles of keys, whose block goes through the heads that share them and
// their queries in order.
template <class T, class R, class S, class Sees>
__global__ void KeyGradients(BackwardOperands<T, R> x, Heads heads, Sees sees) {
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

  // The first query that may see one of these keys is the first that does not come before the first of them.
  const int64_t q_first = sees.FirstQuery(k_begin);
  float out_k[S::kColumns] = {}, out_v[S::kColumns] = {};
  for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    for (int64_t q_begin = q_first; q_begin < T_ && sees.First(heads, x.document_start_T, q_begin) < k_end;
         q_begin += S::kRows) {
      LoadTile<S>(x.q, q_begin, T_, heads.heads, h, E, q_tile);
      LoadTile<S>(x.d_o, q_begin, T_, heads.heads, h, E, d_o_tile);
      __syncthreads();
      for (int j = 0; j < S::kPairs; ++j) {
        const int query = lane + S::kLanes * j;
        const int64_t t = q_begin + query;
        if (query >= S::kRows) break;
        float p = 0, d_s = 0;
        if (t < T_ && s < sees.End(t) && s >= sees.First(heads, x.document_start_T, t)) {
          const float score = heads.Capped(heads.scale * Dot<S>(q_tile, query, k_tile, row, E));
          p = Exp(score - x.lse_TH[t * heads.heads + h]);
          d_s = p * (Dot<S>(d_o_tile, query, v_tile, row, E) - x.delta_TH[t * heads.heads + h]) * heads.CapSlope(score);
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
  StoreRow<S>(out_k, heads.scale, s, heads.kv_heads, kv_head, E, lane, x.d_k);
  StoreRow<S>(out_v, 1, s, heads.kv_heads, kv_head, E, lane, x.d_v);
}

// `args`: of the backward of attention and attention_step, with room for delta. `acc`: onto the d_q of steps before.
template <class T, class R, class S, class Sees>
Status LaunchAttentionBackward(const KernelArgs& args, const Heads& heads, const Sees& sees, bool acc,
                               gpuStream_t stream) {
  if (heads.tokens == 0) return OkStatus();
  const auto x = BackwardOperandsOf<T, R>(args, acc);
  const auto tiles = static_cast<unsigned>((heads.tokens + S::kRows - 1) / S::kRows);
  constexpr unsigned kThreads = kBlockThreads;
  TEMPER_RETURN_IF_ERROR(FindDeltas(x.d_o, x.o, heads, x.delta_TH, stream));
  TEMPER_RETURN_IF_ERROR(TEMPER_LAUNCH((QueryGradients<T, R, S, Sees>),
                                       (gpuDim3{tiles, static_cast<unsigned>(heads.heads)}), kThreads, stream, x, heads,
                                       sees));
  return TEMPER_LAUNCH((KeyGradients<T, R, S, Sees>), (gpuDim3{tiles, static_cast<unsigned>(heads.kv_heads)}), kThreads,
                       stream, x, heads, sees);
}

}  // namespace temper::gpu
