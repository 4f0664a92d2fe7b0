// attention_step and its backward: this rank's queries on the keys of one rank of a context-parallel group, by the
// tiles of attention.cu, without matrix units. Rows are dealt (tensor/context_part.h): which local keys a local query
// sees follows from both ranks' places. Steps before it are one more key, which scores their lse and has their o as
// value. Floor: 4 flops per query, visible key and element; backward 10, of which it does 14.
#include "backend/gpu/attention_matrix.h"
#include "graph/ops/context_attributes.h"

namespace temper::gpu {
namespace {

struct Dealt {
  ContextPart queries, keys;

  // Local keys [first, end) that the query at local t sees. Both grow with t. Never outside of what there is, whatever
  // the data says.
  __device__ int64_t First(const Heads& heads, const int* document_start_T, int64_t t) const {
    const int64_t place = queries.PlaceOf(t);
    int64_t first = document_start_T[t];
    if (heads.window > 0 && first < place - heads.window + 1) first = place - heads.window + 1;
    return keys.LocalFrom(first < 0 ? 0 : first > place ? place : first);
  }
  __device__ int64_t End(int64_t t) const { return keys.LocalFrom(queries.PlaceOf(t) + 1); }
};

template <class T>
struct StepOperands {
  const T *q, *k, *v;
  const int* document_start_T;
  const float *o_before, *lse_before;  // nullptr: the first step
  float *o, *lse_TH;
};

template <class T, class S>
__global__ void StepTiles(StepOperands<T> x, Heads heads, Dealt dealt, int64_t* fault) {
  TEMPER_SHARED(float, q_tile, S::kElements);
  TEMPER_SHARED(float, kv_tile, S::kElements);  // of keys, then of values
  TEMPER_SHARED(float, p_tile, S::kScores);
  TEMPER_SHARED(int, first_seen, S::kRows);
  TEMPER_SHARED(int, end_seen, S::kRows);
  const int row = static_cast<int>(threadIdx.x) / S::kLanes, lane = static_cast<int>(threadIdx.x) % S::kLanes;
  const int64_t q_begin = int64_t{blockIdx.x} * S::kRows, h = blockIdx.y, E = heads.E;
  const int64_t q_end = q_begin + S::kRows < heads.tokens ? q_begin + S::kRows : heads.tokens;
  const int64_t t = q_begin + row, kv_head = heads.KvHead(h);
  const bool valid = t < q_end;
  const int64_t first = valid ? dealt.First(heads, x.document_start_T, t) : heads.tokens;
  const int64_t end = valid ? dealt.End(t) : 0;
  if (lane == 0) {
    first_seen[row] = static_cast<int>(first);
    end_seen[row] = static_cast<int>(end);
    if (valid && h == 0) {
      const int start = x.document_start_T[t];
      if (start < 0 || start > dealt.queries.PlaceOf(t) || (t > 0 && start < x.document_start_T[t - 1])) *fault = 1 + t;
    }
  }
  LoadTile<S>(x.q, q_begin, q_end, heads.heads, h, E, q_tile);
  __syncthreads();
  int64_t k_begin = heads.tokens, k_end = 0;
  for (int r = 0; r < S::kRows; ++r) {
    k_begin = first_seen[r] < k_begin ? first_seen[r] : k_begin;
    k_end = end_seen[r] > k_end ? end_seen[r] : k_end;
  }

  const bool before_it = valid && x.lse_before != nullptr;
  float largest = before_it ? x.lse_before[t * heads.heads + h] : -INFINITY, sum = before_it ? 1 : 0;
  float out[S::kColumns] = {};
  for (int c = 0; c < S::kColumns && before_it; ++c) {
    const int e = lane + S::kLanes * c;
    if (e < E) out[c] = x.o_before[(t * heads.heads + h) * E + e];
  }
  for (; k_begin < k_end; k_begin += S::kRows) {
    LoadTile<S>(x.k, k_begin, k_end, heads.kv_heads, kv_head, E, kv_tile);
    __syncthreads();
    float score[S::kPairs], here = -INFINITY;
    for (int j = 0; j < S::kPairs; ++j) {
      const int key = lane + S::kLanes * j;
      const int64_t s = k_begin + key;
      const bool seen = valid && key < S::kRows && s >= first && s < end;
      score[j] = seen ? heads.scale * Dot<S>(q_tile, row, kv_tile, key, E) : -INFINITY;
      here = Max()(here, score[j]);
    }
    const float before = largest;
    largest = Max()(largest, ReduceRow<S, Max>(here));
    // No key of this query yet: nothing to scale, and nothing that exp could take.
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

template <class T>
struct StepGradients {
  const T *d_o, *q, *k, *v;
  const float *lse_TH, *delta_TH;
  const int* document_start_T;
  const float* d_q_before;  // nullptr: none
  float *d_q, *d_k, *d_v;
};

template <class T, class S>
__global__ void StepQueryGradients(StepGradients<T> x, Heads heads, Dealt dealt) {
  TEMPER_SHARED(float, q_tile, S::kElements);
  TEMPER_SHARED(float, d_o_tile, S::kElements);
  TEMPER_SHARED(float, k_tile, S::kElements);
  TEMPER_SHARED(float, v_tile, S::kElements);
  TEMPER_SHARED(float, d_s_tile, S::kScores);
  TEMPER_SHARED(int, first_seen, S::kRows);
  TEMPER_SHARED(int, end_seen, S::kRows);
  const int row = static_cast<int>(threadIdx.x) / S::kLanes, lane = static_cast<int>(threadIdx.x) % S::kLanes;
  const int64_t q_begin = int64_t{blockIdx.x} * S::kRows, h = blockIdx.y, E = heads.E;
  const int64_t q_end = q_begin + S::kRows < heads.tokens ? q_begin + S::kRows : heads.tokens;
  const int64_t t = q_begin + row, kv_head = heads.KvHead(h);
  const bool valid = t < q_end;
  const int64_t first = valid ? dealt.First(heads, x.document_start_T, t) : heads.tokens;
  const int64_t end = valid ? dealt.End(t) : 0;
  const float lse = valid ? x.lse_TH[t * heads.heads + h] : 0, delta = valid ? x.delta_TH[t * heads.heads + h] : 0;
  if (lane == 0) {
    first_seen[row] = static_cast<int>(first);
    end_seen[row] = static_cast<int>(end);
  }
  LoadTile<S>(x.q, q_begin, q_end, heads.heads, h, E, q_tile);
  LoadTile<S>(x.d_o, q_begin, q_end, heads.heads, h, E, d_o_tile);
  __syncthreads();
  int64_t k_begin = heads.tokens, k_end = 0;
  for (int r = 0; r < S::kRows; ++r) {
    k_begin = first_seen[r] < k_begin ? first_seen[r] : k_begin;
    k_end = end_seen[r] > k_end ? end_seen[r] : k_end;
  }

  float out[S::kColumns] = {};
  for (; k_begin < k_end; k_begin += S::kRows) {
    LoadTile<S>(x.k, k_begin, k_end, heads.kv_heads, kv_head, E, k_tile);
    LoadTile<S>(x.v, k_begin, k_end, heads.kv_heads, kv_head, E, v_tile);
    __syncthreads();
    for (int j = 0; j < S::kPairs; ++j) {
      const int key = lane + S::kLanes * j;
      const int64_t s = k_begin + key;
      if (key >= S::kRows) break;
      float d_s = 0;
      if (valid && s >= first && s < end) {
        const float p = Exp(heads.scale * Dot<S>(q_tile, row, k_tile, key, E) - lse);
        d_s = p * (Dot<S>(d_o_tile, row, v_tile, key, E) - delta);
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
    if (e < E) x.d_q[at] = x.d_q_before == nullptr ? out[c] * heads.scale : Fma(out[c], heads.scale, x.d_q_before[at]);
  }
}

template <class T, class S>
__global__ void StepKeyGradients(StepGradients<T> x, Heads heads, Dealt dealt) {
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
  const int64_t q_first = dealt.queries.LocalFrom(dealt.keys.PlaceOf(k_begin));
  float out_k[S::kColumns] = {}, out_v[S::kColumns] = {};
  for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    for (int64_t q_begin = q_first; q_begin < T_ && dealt.First(heads, x.document_start_T, q_begin) < k_end;
         q_begin += S::kRows) {
      LoadTile<S>(x.q, q_begin, T_, heads.heads, h, E, q_tile);
      LoadTile<S>(x.d_o, q_begin, T_, heads.heads, h, E, d_o_tile);
      __syncthreads();
      for (int j = 0; j < S::kPairs; ++j) {
        const int query = lane + S::kLanes * j;
        const int64_t t = q_begin + query;
        if (query >= S::kRows) break;
        float p = 0, d_s = 0;
        if (t < T_ && s < dealt.End(t) && s >= dealt.First(heads, x.document_start_T, t)) {
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
  StoreRow<S>(out_k, heads.scale, s, heads.kv_heads, kv_head, E, lane, x.d_k);
  StoreRow<S>(out_v, 1, s, heads.kv_heads, kv_head, E, lane, x.d_v);
}

Dealt DealtOf(const Attributes& a) {
  return {ContextPartOf(a, "row"), ContextPartOf(a, "row", "origin")};
}

}  // namespace

std::unique_ptr<Kernel> MakeAttentionStep(const KernelSpec& spec, const Context& context) {
  const Heads heads = HeadsOf(spec.inputs[0], spec.attributes);
  if (!IsCompute(spec.inputs[0]) || heads.E > kMostHeadDim) return nullptr;
  const Dealt dealt = DealtOf(spec.attributes);
  const bool acc = spec.attributes.Flag("acc");
  int64_t* const fault = context.faults->Register([](int64_t word) {
    return "attention_step: token " + std::to_string(word - 1) +
           " of this rank does not name the first token of its document: document starts must not fall, and lie before "
           "their token";
  });
  return DispatchAttention(spec.inputs[0], heads.E, [&]<class T, class S>() -> std::unique_ptr<Kernel> {
    return MakeKernel([=, stream = context.stream](const KernelArgs& args) {
      if (heads.tokens == 0) return OkStatus();
      const StepOperands<T> x = {In<T>(args, 0),
                                 In<T>(args, 1),
                                 In<T>(args, 2),
                                 In<const int>(args, 3),
                                 acc ? In<float>(args, 4) : nullptr,
                                 acc ? In<float>(args, 5) : nullptr,
                                 Out<float>(args, 0),
                                 Out<float>(args, 1)};
      const auto tiles = static_cast<unsigned>((heads.tokens + S::kRows - 1) / S::kRows);
      return TEMPER_LAUNCH((StepTiles<T, S>), (gpuDim3{tiles, static_cast<unsigned>(heads.heads)}),
                           unsigned{kBlockThreads}, stream, x, heads, dealt, fault);
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
      if (heads.tokens == 0) return OkStatus();
      float* const delta = reinterpret_cast<float*>(args.workspace);
      const StepGradients<T> x = {In<T>(args, 0),         In<T>(args, 1),
                                  In<T>(args, 2),         In<T>(args, 3),
                                  In<float>(args, 5),     delta,
                                  In<const int>(args, 6), acc ? In<float>(args, 7) : nullptr,
                                  Out<float>(args, 0),    Out<float>(args, 1),
                                  Out<float>(args, 2)};
      const auto tiles = static_cast<unsigned>((heads.tokens + S::kRows - 1) / S::kRows);
      constexpr unsigned kThreads = kBlockThreads;
      TEMPER_RETURN_IF_ERROR(FindDeltas<T>(x.d_o, In<T>(args, 4), heads, delta, stream));
      TEMPER_RETURN_IF_ERROR(TEMPER_LAUNCH((StepQueryGradients<T, S>),
                                           (gpuDim3{tiles, static_cast<unsigned>(heads.heads)}), kThreads, stream, x,
                                           heads, dealt));
      return TEMPER_LAUNCH((StepKeyGradients<T, S>), (gpuDim3{tiles, static_cast<unsigned>(heads.kv_heads)}), kThreads,
                           stream, x, heads, dealt);
    });
  });
}

}  // namespace temper::gpu
