// attention on matrix units: attention.cu's algorithm, a block per kBlockRows queries and head. While scores are made
// the values come in, while values are weighted the next keys do.
#include "backend/gpu/attention_matrix.h"

namespace temper::gpu {
namespace {

template <class M>
__global__ void TEMPER_LAUNCH_BOUNDS(M::kThreads)
    MatrixAttention(const bf16* q, const bf16* k, const bf16* v, const int* document_start_T, Heads heads, bf16* o,
                    float* lse_TH, int64_t* fault) {
  using U = typename M::Unit;
  using C = typename U::C;
  TEMPER_SHARED(Bf16Bits, k_tile, M::kElements);
  TEMPER_SHARED(Bf16Bits, v_tile, M::kElements);
  const int lane = static_cast<int>(threadIdx.x) % U::kLanes, warp = static_cast<int>(threadIdx.x) / U::kLanes;
  // The last queries see the most keys: their blocks begin first.
  const int64_t q_begin = int64_t{gridDim.x - 1 - blockIdx.x} * M::kBlockRows, h = blockIdx.y, E = heads.E;
  const int64_t q_end = q_begin + M::kBlockRows < heads.tokens ? q_begin + M::kBlockRows : heads.tokens;
  const int64_t kv_head = heads.KvHead(h), begin = q_begin + warp * U::kRows;  // the warp's queries
  if (h == 0 && q_begin + threadIdx.x < q_end) {
    const int64_t t = q_begin + threadIdx.x;
    const int start = document_start_T[t];
    if (start < 0 || start > t || (t > 0 && start < document_start_T[t - 1])) *fault = 1 + t;
  }
  int query[U::kHeldRows], first[U::kHeldRows];  // of this lane
  for (int i = 0; i < U::kHeldRows; ++i) {
    query[i] = static_cast<int>(begin) + U::Row(lane, i);
    first[i] = static_cast<int>(query[i] < q_end ? heads.FirstSeen(document_start_T, query[i]) : q_end);
  }
  typename U::A q_rows[M::kSteps];
  LoadRows<M>(q, begin, q_end, heads.heads, h, E, lane, q_rows);
  // Documents begin in order, so that the first query sees the first key of all, and the last the last first one.
  const int64_t k_begin = heads.FirstSeen(document_start_T, q_begin);
  const int64_t all_see_from = heads.FirstSeen(document_start_T, q_end - 1);
  const float scale = heads.scale * kLog2E;

  float largest[U::kHeldRows], sum[U::kHeldRows];  // of scores in units of log 2; what this lane has of the sum
  for (int i = 0; i < U::kHeldRows; ++i) {
    largest[i] = -INFINITY;
    sum[i] = 0;
  }
  C out[M::kColumnTiles] = {};
  TileCopy<M> keys, values;
  keys.Start(k, k_begin, q_end, heads.kv_heads, kv_head, E, k_tile);
  for (int64_t s_begin = k_begin; s_begin < q_end; s_begin += kTileRows) {
    values.Start(v, s_begin, q_end, heads.kv_heads, kv_head, E, v_tile);
    keys.template Finish<1>(k_tile);
    TEMPER_SYNC_SHARED();  // keys are there
    C score[kTileRows / U::kColumns] = {};
    TEMPER_UNROLL
    for (int from = 0; from < kTileRows; from += U::kSpan) {
      AddScores<M>(q_rows, k_tile, from, lane, score + from / U::kColumns);
    }
    if constexpr (U::kCopiesBeside) TEMPER_SYNC_SHARED();                           // and may be overwritten
    keys.Start(k, s_begin + kTileRows, q_end, heads.kv_heads, kv_head, E, k_tile);  // zeros, behind the last

    const bool whole =
        s_begin >= all_see_from && s_begin + kTileRows - 1 <= q_begin && q_begin + M::kBlockRows <= q_end;
    TEMPER_UNROLL
    for (int n = 0; n < kTileRows / U::kColumns; ++n) {
      TEMPER_UNROLL
      for (int i = 0; i < U::kSums; ++i) score[n].x[i] *= scale;
    }
    if (!whole) {
      const int s_lane = static_cast<int>(s_begin) + U::Column(lane, 0);
      TEMPER_UNROLL
      for (int n = 0; n < kTileRows / U::kColumns; ++n) {
        TEMPER_UNROLL
        for (int i = 0; i < U::kSums; ++i) {
          const int s = s_lane + n * U::kColumns + U::Column(0, i), held = U::HeldRow(i);
          if (s < first[held] || s > query[held]) score[n].x[i] = -INFINITY;
        }
      }
    }
    float here[U::kHeldRows], base[U::kHeldRows], rescale[U::kHeldRows];
    for (int i = 0; i < U::kHeldRows; ++i) here[i] = -INFINITY;
    TEMPER_UNROLL
    for (int n = 0; n < kTileRows / U::kColumns; ++n) {
      TEMPER_UNROLL
      for (int i = 0; i < U::kSums; ++i) {
        here[U::HeldRow(i)] = Larger()(here[U::HeldRow(i)], score[n].x[i]);
      }
    }
    TEMPER_UNROLL
    for (int i = 0; i < U::kHeldRows; ++i) {
      const float before = largest[i];
      largest[i] = Larger()(before, U::template ReduceRow<Larger>(here[i]));
      // No key of this query yet: nothing that could be taken from -inf.
      base[i] = largest[i] > -INFINITY ? largest[i] : 0;
      rescale[i] = Exp2Flush(before - base[i]);
      sum[i] *= rescale[i];
    }
    TEMPER_UNROLL
    for (int n = 0; n < kTileRows / U::kColumns; ++n) {
      TEMPER_UNROLL
      for (int i = 0; i < U::kSums; ++i) {
        score[n].x[i] = Exp2Flush(score[n].x[i] - base[U::HeldRow(i)]);
        sum[U::HeldRow(i)] += score[n].x[i];
      }
    }
    TEMPER_UNROLL
    for (int n = 0; n < M::kColumnTiles; ++n) {
      TEMPER_UNROLL
      for (int i = 0; i < U::kSums; ++i) out[n].x[i] *= rescale[U::HeldRow(i)];
    }
    values.template Finish<1>(v_tile);
    TEMPER_SYNC_SHARED();  // values are there
    TEMPER_UNROLL
    for (int from = 0; from < kTileRows; from += U::kSpan) {
      AddProduct<M>(score + from / U::kColumns, v_tile, from, lane, out);
    }
    if constexpr (U::kCopiesBeside) TEMPER_SYNC_SHARED();  // the next values overwrite them
  }
  TEMPER_UNROLL
  for (int i = 0; i < U::kHeldRows; ++i) {
    sum[i] = U::template ReduceRow<Sum>(sum[i]);
    if (query[i] >= q_end) continue;
    const int64_t row = query[i] * heads.heads + h;
    U::template StoreRow<M::kE>(out, i, 1 / sum[i], E, lane, o + row * E);
    if (U::Column(lane, 0) == 0) lse_TH[row] = largest[i] * kLn2 + Log(sum[i]);
  }
}

}  // namespace

std::unique_ptr<Kernel> MakeMatrixAttention(const Heads& heads, const Context& context, Faults::Word* fault) {
  return WithMatrixTile(heads, context.stream, [&]<class M>() {
    return MakeKernel([heads, stream = context.stream, fault = std::move(*fault)](const KernelArgs& args) {
      if (heads.tokens == 0) return OkStatus();
      const gpuDim3 blocks = {BlocksOf(heads.tokens, M::kBlockRows), static_cast<unsigned>(heads.heads)};
      return TEMPER_LAUNCH((MatrixAttention<M>), blocks, unsigned{M::kThreads}, stream, In<const bf16>(args, 0),
                           In<const bf16>(args, 1), In<const bf16>(args, 2), In<const int>(args, 3), heads,
                           Out<bf16>(args, 0), Out<float>(args, 1), fault.get());
    });
  });
}

}  // namespace temper::gpu
