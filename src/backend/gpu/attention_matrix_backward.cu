// attention_backward on matrix units: attention_backward.cu's three kernels. d_q has a block per kBlockRows queries and
// head; d_k and d_v one per kBlockRows keys and head of theirs, which goes through the heads that share them and their
// queries in order.
#include "backend/gpu/attention_matrix.h"

namespace temper::gpu {
namespace {

struct Operands {
  const bf16 *d_o, *q, *k, *v;
  const float *lse_TH, *delta_TH;
  const int* document_start_T;
};

template <class M>
__global__ void TEMPER_LAUNCH_BOUNDS(M::kThreads) MatrixQueryGradients(Operands x, Heads heads, bf16* d_q) {
  using U = typename M::Unit;
  using C = typename U::C;
  TEMPER_SHARED(Bf16Bits, k_tile, M::kElements);
  TEMPER_SHARED(Bf16Bits, v_tile, M::kElements);
  const int lane = static_cast<int>(threadIdx.x) % U::kLanes, warp = static_cast<int>(threadIdx.x) / U::kLanes;
  const int64_t q_begin = int64_t{gridDim.x - 1 - blockIdx.x} * M::kBlockRows, h = blockIdx.y, E = heads.E;
  const int64_t q_end = q_begin + M::kBlockRows < heads.tokens ? q_begin + M::kBlockRows : heads.tokens;
  const int64_t kv_head = heads.KvHead(h), begin = q_begin + warp * U::kRows;
  int query[U::kHeldRows], first[U::kHeldRows];
  float lse[U::kHeldRows], delta[U::kHeldRows];
  for (int i = 0; i < U::kHeldRows; ++i) {
    const int64_t t = begin + U::Row(lane, i);
    const bool valid = t < q_end;
    query[i] = static_cast<int>(t);
    first[i] = static_cast<int>(valid ? heads.FirstSeen(x.document_start_T, t) : q_end);
    lse[i] = valid ? x.lse_TH[t * heads.heads + h] * kLog2E : 0;
    delta[i] = valid ? x.delta_TH[t * heads.heads + h] : 0;
  }
  typename U::A q_rows[M::kSteps], d_o_rows[M::kSteps];
  LoadRows<M>(x.q, begin, q_end, heads.heads, h, E, lane, q_rows);
  LoadRows<M>(x.d_o, begin, q_end, heads.heads, h, E, lane, d_o_rows);
  const float scale = heads.scale * kLog2E;

  C out[M::kColumnTiles] = {};
  TileCopy<M> keys, values;
  for (int64_t s_begin = heads.FirstSeen(x.document_start_T, q_begin); s_begin < q_end; s_begin += kTileRows) {
    keys.Start(x.k, s_begin, q_end, heads.kv_heads, kv_head, E, k_tile);
    values.Start(x.v, s_begin, q_end, heads.kv_heads, kv_head, E, v_tile);
    keys.template Finish<1>(k_tile);
    values.template Finish<0>(v_tile);
    TEMPER_SYNC_SHARED();
    TEMPER_UNROLL
    for (int from = 0; from < kTileRows; from += U::kSpan) {
      C score[M::kScores] = {}, d_p[M::kScores] = {};
      AddScores<M>(q_rows, k_tile, from, lane, score);
      AddScores<M>(d_o_rows, v_tile, from, lane, d_p);
      TEMPER_UNROLL
      for (int n = 0; n < M::kScores; ++n) {
        TEMPER_UNROLL
        for (int i = 0; i < U::kSums; ++i) {
          const int s = static_cast<int>(s_begin) + from + n * U::kColumns + U::Column(lane, i), held = U::HeldRow(i);
          const bool seen = s >= first[held] && s <= query[held];
          const float p = seen ? Exp2Flush(Fma(scale, score[n].x[i], -lse[held])) : 0;
          score[n].x[i] = p * (d_p[n].x[i] - delta[held]);  // d_s
        }
      }
      AddProduct<M>(score, k_tile, from, lane, out);
    }
    TEMPER_SYNC_SHARED();
  }
  TEMPER_UNROLL
  for (int i = 0; i < U::kHeldRows; ++i) {
    if (query[i] >= q_end) continue;
    U::template StoreRow<M::kE>(out, i, heads.scale, E, lane, d_q + (query[i] * heads.heads + h) * E);
  }
}

template <class M>
__global__ void __launch_bounds__(M::kThreads) MatrixKeyGradients(Operands x, Heads heads, bf16* d_k, bf16* d_v) {
  using U = typename M::Unit;
  using C = typename U::C;
  TEMPER_SHARED(Bf16Bits, q_tile, M::kElements);
  TEMPER_SHARED(Bf16Bits, d_o_tile, M::kElements);
  TEMPER_SHARED(float, lse, kTileRows);
  TEMPER_SHARED(float, delta, kTileRows);
  TEMPER_SHARED(int, first_seen, kTileRows);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % U::kLanes, warp = thread / U::kLanes;
  const int64_t k_begin = int64_t{blockIdx.x} * M::kBlockRows, kv_head = blockIdx.y, E = heads.E, T = heads.tokens;
  const int64_t k_end = k_begin + M::kBlockRows < T ? k_begin + M::kBlockRows : T;
  const int64_t begin = k_begin + warp * U::kRows, group = heads.heads / heads.kv_heads;
  typename U::A k_rows[M::kSteps], v_rows[M::kSteps];
  LoadRows<M>(x.k, begin, k_end, heads.kv_heads, kv_head, E, lane, k_rows);
  LoadRows<M>(x.v, begin, k_end, heads.kv_heads, kv_head, E, lane, v_rows);
  const float scale = heads.scale * kLog2E;

  C out_k[M::kColumnTiles] = {}, out_v[M::kColumnTiles] = {};
  TileCopy<M> queries, gradients;
  float lse_here = 0, delta_here = 0;  // of this thread's query of the tile
  int first_here = 0;
  const auto start = [&](int h, int q_begin) {
    queries.Start(x.q, q_begin, T, heads.heads, h, E, q_tile);
    gradients.Start(x.d_o, q_begin, T, heads.heads, h, E, d_o_tile);
    const int64_t t = q_begin + thread % kTileRows;
    lse_here = t < T ? x.lse_TH[t * heads.heads + h] * kLog2E : 0.0f;
    delta_here = t < T ? x.delta_TH[t * heads.heads + h] : 0.0f;
    first_here = static_cast<int>(t < T ? heads.FirstSeen(x.document_start_T, t) : T);  // what is no query sees no key
  };
  const int q_first = static_cast<int>(k_begin), h_end = static_cast<int>((kv_head + 1) * group);
  int h_next = static_cast<int>(kv_head * group), q_next = q_first;
  start(h_next, q_next);
  // Later queries see no earlier keys: the first tile whose first query sees none of these is beyond the last.
  const auto start_next = [&] {
    q_next += kTileRows;
    if (q_next >= T || heads.FirstSeen(x.document_start_T, q_next) >= k_end) {
      ++h_next;
      q_next = q_first;
    }
    if (h_next < h_end) start(h_next, q_next);
  };
  while (h_next < h_end) {
    const int q_begin = q_next;
    if (thread < kTileRows) {
      lse[thread] = lse_here;
      delta[thread] = delta_here;
      first_seen[thread] = first_here;
    }
    queries.template Finish<1>(q_tile);
    gradients.template Finish<0>(d_o_tile);
    TEMPER_SYNC_SHARED();
    if constexpr (!U::kCopiesBeside) start_next();
    TEMPER_NO_UNROLL  // the accumulators leave no registers for two at once
        for (int from = 0; from < kTileRows; from += U::kSpan) {
      C p[M::kScores] = {}, d_s[M::kScores] = {};
      AddScores<M>(k_rows, q_tile, from, lane, p);
      AddScores<M>(v_rows, d_o_tile, from, lane, d_s);
      TEMPER_UNROLL
      for (int n = 0; n < M::kScores; ++n) {
        TEMPER_UNROLL
        for (int i = 0; i < U::kSums; ++i) {
          const int column = from + n * U::kColumns + U::Column(lane, i);
          const int t = q_begin + column, s = static_cast<int>(begin) + U::Row(lane, U::HeldRow(i));
          const bool seen = s <= t && s >= first_seen[column];
          p[n].x[i] = seen ? Exp2Flush(Fma(scale, p[n].x[i], -lse[column])) : 0;
          d_s[n].x[i] = p[n].x[i] * (d_s[n].x[i] - delta[column]);
        }
      }
      AddProduct<M>(p, d_o_tile, from, lane, out_v);
      AddProduct<M>(d_s, q_tile, from, lane, out_k);
    }
    TEMPER_SYNC_SHARED();
    if constexpr (U::kCopiesBeside) start_next();
  }
  TEMPER_UNROLL
  for (int i = 0; i < U::kHeldRows; ++i) {
    const int64_t s = begin + U::Row(lane, i), at = (s * heads.kv_heads + kv_head) * E;
    if (s >= k_end) continue;
    U::template StoreRow<M::kE>(out_k, i, heads.scale, E, lane, d_k + at);
    U::template StoreRow<M::kE>(out_v, i, 1, E, lane, d_v + at);
  }
}

}  // namespace

std::unique_ptr<Kernel> MakeMatrixAttentionBackward(const Heads& heads, const Context& context) {
  return WithMatrixTile(heads, context.stream, [&]<class M>() {
    return MakeKernel([heads, stream = context.stream](const KernelArgs& args) {
      if (heads.tokens == 0) return OkStatus();
      float* const delta = reinterpret_cast<float*>(args.workspace);
      const Operands x = {In<const bf16>(args, 0), In<const bf16>(args, 1),  In<const bf16>(args, 2),
                          In<const bf16>(args, 3), In<const float>(args, 5), delta,
                          In<const int>(args, 6)};
      const unsigned tiles = BlocksOf(heads.tokens, M::kBlockRows);
      constexpr unsigned kThreads = M::kThreads;
      TEMPER_RETURN_IF_ERROR(FindDeltas(x.d_o, In<const bf16>(args, 4), heads, delta, stream));
      TEMPER_RETURN_IF_ERROR(TEMPER_LAUNCH((MatrixQueryGradients<M>),
                                           (gpuDim3{tiles, static_cast<unsigned>(heads.heads)}), kThreads, stream, x,
                                           heads, Out<bf16>(args, 0)));
      return TEMPER_LAUNCH((MatrixKeyGradients<M>), (gpuDim3{tiles, static_cast<unsigned>(heads.kv_heads)}), kThreads,
                           stream, x, heads, Out<bf16>(args, 1), Out<bf16>(args, 2));
    });
  });
}

}  // namespace temper::gpu
