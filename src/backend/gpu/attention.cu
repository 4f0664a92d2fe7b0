// attention: a block per tile of queries and head passes over the keys that its queries see, keeping the running
// maximum, sum and output of each (Dao 2023, FlashAttention-2). Floor: 4 flops per query, visible key and element.
#include "backend/gpu/attention_matrix.h"

namespace temper::gpu {
namespace {

template <class T, class S>
__global__ void AttentionTiles(const T* q, const T* k, const T* v, const int* document_start_T, Heads heads, T* o,
                               float* lse_TH, int64_t* fault) {
  TEMPER_SHARED(float, q_tile, S::kElements);
  TEMPER_SHARED(float, kv_tile, S::kElements);  // of keys, then of values
  TEMPER_SHARED(float, p_tile, S::kScores);
  TEMPER_SHARED(int, first_seen, S::kRows);
  const int row = static_cast<int>(threadIdx.x) / S::kLanes, lane = static_cast<int>(threadIdx.x) % S::kLanes;
  const int64_t q_begin = int64_t{blockIdx.x} * S::kRows, h = blockIdx.y, E = heads.E;
  const int64_t q_end = q_begin + S::kRows < heads.tokens ? q_begin + S::kRows : heads.tokens;
  const int64_t t = q_begin + row, kv_head = heads.KvHead(h);
  const bool valid = t < q_end;
  const int64_t first = valid ? heads.FirstSeen(document_start_T, t) : q_end;
  if (lane == 0) {
    first_seen[row] = static_cast<int>(first);
    if (valid && h == 0) {
      const int start = document_start_T[t];
      if (start < 0 || start > t || (t > 0 && start < document_start_T[t - 1])) *fault = 1 + t;
    }
  }
  LoadTile<S>(q, q_begin, q_end, heads.heads, h, E, q_tile);
  __syncthreads();
  int64_t k_begin = q_end;
  for (int r = 0; r < S::kRows; ++r) k_begin = first_seen[r] < k_begin ? first_seen[r] : k_begin;

  float largest = -INFINITY, sum = 0, out[S::kColumns] = {};
  for (; k_begin < q_end; k_begin += S::kRows) {
    LoadTile<S>(k, k_begin, q_end, heads.kv_heads, kv_head, E, kv_tile);
    __syncthreads();
    float score[S::kPairs], here = -INFINITY;
    for (int j = 0; j < S::kPairs; ++j) {
      const int key = lane + S::kLanes * j;
      const int64_t s = k_begin + key;
      const bool seen = valid && key < S::kRows && s >= first && s <= t;
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
    LoadTile<S>(v, k_begin, q_end, heads.kv_heads, kv_head, E, kv_tile);
    __syncthreads();
    for (int c = 0; c < S::kColumns; ++c) out[c] *= rescale;
    AddWeighted<S>(p_tile, row, lane, kv_tile, out);
    __syncthreads();  // the next keys overwrite the values
  }
  if (!valid) return;
  StoreRow<S>(out, 1 / sum, t, heads.heads, h, E, lane, o);
  if (lane == 0) lse_TH[t * heads.heads + h] = largest + Log(sum);
}

}  // namespace

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
      return TEMPER_LAUNCH((AttentionTiles<T, S>), (gpuDim3{tiles, static_cast<unsigned>(heads.heads)}),
                           unsigned{kBlockThreads}, stream, In<T>(args, 0), In<T>(args, 1), In<T>(args, 2),
                           In<const int>(args, 3), heads, Out<T>(args, 0), Out<float>(args, 1), fault);
    });
  });
}

}  // namespace temper::gpu
