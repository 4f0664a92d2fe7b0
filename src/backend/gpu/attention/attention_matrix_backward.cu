// The backward of attention and of the steps of a ring on matrix units: delta, then attention_tiling.h's two kernels.
// d_q has a block per kBlockRows queries and head; d_k and d_v one per kBlockRows keys and part of the heads that share
// them (GpuAttentionScratch), which goes through these heads and their queries in order.
#include "backend/gpu/attention/attention_matrix.h"

namespace temper::gpu {
namespace {

template <class M, class R, class Sees>
__global__ void TEMPER_LAUNCH_BOUNDS(M::kThreads, 2)
    MatrixQueryGradients(BackwardOperands<bf16, R> x, Heads heads, Sees sees) {
  using U = typename M::Unit;
  using C = typename U::C;
  TEMPER_SHARED(Bf16Bits, k_tile, M::kElements);
  TEMPER_SHARED(Bf16Bits, v_tile, M::kElements);
  const int lane = static_cast<int>(threadIdx.x) % U::kLanes, warp = static_cast<int>(threadIdx.x) / U::kLanes;
  const int q_begin = static_cast<int>(gridDim.x - 1 - blockIdx.x) * M::kBlockRows, T = static_cast<int>(heads.tokens);
  const int q_end = T - q_begin < M::kBlockRows ? T : q_begin + M::kBlockRows, h = static_cast<int>(blockIdx.y);
  const int begin = q_begin + warp * U::kRows;
  const int kv_head = static_cast<int>(heads.KvHead(h)), E = static_cast<int>(heads.E);
  float lse[U::kHeldRows], delta[U::kHeldRows];
  for (int i = 0; i < U::kHeldRows; ++i) {
    const int t = begin + U::Row(lane, i);
    lse[i] = t < q_end ? x.lse_TH[t * heads.heads + h] * kLog2E : 0;
    delta[i] = t < q_end ? x.delta_TH[t * heads.heads + h] : 0;
  }
  typename U::A q_rows[M::kSteps], d_o_rows[M::kSteps];
  LoadRows<M>(x.q, begin, q_end, heads.heads, h, E, lane, q_rows);
  LoadRows<M>(x.d_o, begin, q_end, heads.heads, h, E, lane, d_o_rows);
  const SeenKeys<U> seen(heads, sees, x.document_start_T, q_begin, q_end, begin, lane);
  const float scale = heads.scale * kLog2E;

  C out[M::kColumnTiles] = {};
  TileCopy<M> keys, values;
  for (int s_begin = seen.begin; s_begin < seen.any_end; s_begin += kTileRows) {
    keys.Start(x.k, s_begin, seen.any_end, heads.kv_heads, kv_head, E, k_tile);
    values.Start(x.v, s_begin, seen.any_end, heads.kv_heads, kv_head, E, v_tile);
    keys.template Finish<1>(k_tile);
    values.template Finish<0>(v_tile);
    TEMPER_SYNC_SHARED();
    const bool all_seen = seen.All(s_begin, kTileRows);
    TEMPER_UNROLL
    for (int from = 0; from < kTileRows; from += U::kSpan) {
      C score[M::kScores] = {}, d_p[M::kScores] = {};
      AddScores<M>(q_rows, k_tile, from, lane, score);
      AddScores<M>(d_o_rows, v_tile, from, lane, d_p);
      if (!all_seen) seen.Mask(s_begin + from, lane, score);
      TEMPER_UNROLL
      for (int n = 0; n < M::kScores; ++n) {
        TEMPER_UNROLL
        for (int i = 0; i < U::kSums; ++i) {
          const int held = U::HeldRow(i);
          const float p = Exp2Flush(Fma(scale, score[n].x[i], -lse[held]));
          score[n].x[i] = p * (d_p[n].x[i] - delta[held]);  // d_s
        }
      }
      AddProduct<M>(score, k_tile, from, lane, out);
    }
    TEMPER_SYNC_SHARED();
  }
  StoreRows<U>(out, heads.scale, x.d_q_before, begin, q_end, heads.heads, h, E, lane, x.d_q);
}

template <class M, class R, class Sees>
__global__ void TEMPER_LAUNCH_BOUNDS(M::kThreads, M::kE <= 64 ? 2 : 1)
    MatrixKeyGradients(BackwardOperands<bf16, R> x, Heads heads, Sees sees) {
  using U = typename M::Unit;
  using C = typename U::C;
  TEMPER_SHARED(Bf16Bits, q_tile, M::kElements);
  TEMPER_SHARED(Bf16Bits, d_o_tile, M::kElements);
  TEMPER_SHARED(float, lse, kTileRows);
  TEMPER_SHARED(float, delta, kTileRows);
  TEMPER_SHARED(SeenPlaces, seen, kTileRows);
  TEMPER_SHARED(int, places, M::kBlockRows);  // of the block's keys
  const int thread = static_cast<int>(threadIdx.x), lane = thread % U::kLanes, warp = thread / U::kLanes;
  const int k_begin = static_cast<int>(blockIdx.x) * M::kBlockRows, T = static_cast<int>(heads.tokens);
  const int k_end = T - k_begin < M::kBlockRows ? T : k_begin + M::kBlockRows, begin = k_begin + warp * U::kRows;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int of_part = static_cast<int>(heads.heads / heads.kv_heads) / static_cast<int>(gridDim.z);  // heads
  const int E = static_cast<int>(heads.E);
  typename U::A k_rows[M::kSteps], v_rows[M::kSteps];
  LoadRows<M>(x.k, begin, k_end, heads.kv_heads, kv_head, E, lane, k_rows);
  LoadRows<M>(x.v, begin, k_end, heads.kv_heads, kv_head, E, lane, v_rows);
  const float scale = heads.scale * kLog2E;

  if (thread < M::kBlockRows) places[thread] = static_cast<int>(sees.PlaceOfKey(k_begin + thread));
  const int q_first = static_cast<int>(sees.FirstQuery(k_begin));
  const int q_stop = q_first + TilesThatSee(heads, sees, x.document_start_T, q_first, k_end, kTileRows) * kTileRows;

  C out_k[M::kColumnTiles] = {}, out_v[M::kColumnTiles] = {};
  TileCopy<M> queries, gradients;
  float lse_here = 0, delta_here = 0;  // of this thread's query of the tile
  SeenPlaces seen_here = {};
  const auto start = [&](int h, int q_begin) {
    queries.Start(x.q, q_begin, T, heads.heads, h, E, q_tile);
    gradients.Start(x.d_o, q_begin, T, heads.heads, h, E, d_o_tile);
    const int t = q_begin + thread % kTileRows;
    lse_here = t < T ? x.lse_TH[t * heads.heads + h] * kLog2E : 0.0f;
    delta_here = t < T ? x.delta_TH[t * heads.heads + h] : 0.0f;
    seen_here = SeenPlaces::Of(heads, sees, x.document_start_T, t);
  };
  const int h_first = (kv_head * static_cast<int>(gridDim.z) + static_cast<int>(blockIdx.z)) * of_part,
            h_end = h_first + of_part;
  int h = q_first < q_stop ? h_first : h_end, q_begin = q_first;
  if (h < h_end) start(h, q_begin);
  const auto start_next = [&] {
    q_begin += kTileRows;
    if (q_begin == q_stop) {
      ++h;
      q_begin = q_first;
    }
    if (h < h_end) start(h, q_begin);
  };
  while (h < h_end) {
    if (thread < kTileRows) {
      lse[thread] = lse_here;
      delta[thread] = delta_here;
      seen[thread] = seen_here;
    }
    queries.template Finish<1>(q_tile);
    gradients.template Finish<0>(d_o_tile);
    TEMPER_SYNC_SHARED();
    if constexpr (!U::kCopiesBeside) start_next();
    const bool all_seen = AllSee(seen, 0, kTileRows, places, M::kBlockRows);
    TEMPER_NO_UNROLL  // the accumulators leave no registers for two at once
        for (int from = 0; from < kTileRows; from += U::kSpan) {
      C p[M::kScores] = {}, d_s[M::kScores] = {};
      AddScores<M>(k_rows, q_tile, from, lane, p);
      AddScores<M>(v_rows, d_o_tile, from, lane, d_s);
      if (!all_seen) MaskKeys<U>(seen, from, places, warp * U::kRows, lane, p);
      const int column = from + U::Column(lane, 0);
      TEMPER_UNROLL
      for (int n = 0; n < M::kScores; ++n) {
        TEMPER_UNROLL
        for (int i = 0; i < U::kSums; ++i) {
          p[n].x[i] = Exp2Flush(Fma(scale, p[n].x[i], -lse[column + n * U::kColumns + U::Column(0, i)]));
        }
      }
      AddProduct<M>(p, d_o_tile, from, lane, out_v);
      TEMPER_UNROLL
      for (int n = 0; n < M::kScores; ++n) {
        TEMPER_UNROLL
        for (int i = 0; i < U::kSums; ++i) {
          d_s[n].x[i] = p[n].x[i] * (d_s[n].x[i] - delta[column + n * U::kColumns + U::Column(0, i)]);
        }
      }
      AddProduct<M>(d_s, q_tile, from, lane, out_k);
    }
    TEMPER_SYNC_SHARED();
    if constexpr (U::kCopiesBeside) start_next();
  }
  const int64_t part = int64_t{blockIdx.z} * heads.tokens * heads.kv_heads * E;
  StoreRows<U>(out_k, heads.scale, nullptr, begin, k_end, heads.kv_heads, kv_head, E, lane, x.d_k + part);
  StoreRows<U>(out_v, 1, nullptr, begin, k_end, heads.kv_heads, kv_head, E, lane, x.d_v + part);
}

}  // namespace

template <class R, class Sees>
std::unique_ptr<Kernel> MakeMatrixAttentionBackward(const Heads& heads, const Sees& sees, bool acc,
                                                    const Context& context) {
  return WithMatrixTile(heads, context.stream, [&]<class M>() {
    return MakeKernel([=, stream = context.stream](const KernelArgs& args) {
      if (heads.tokens == 0) return OkStatus();
      const auto x = BackwardOperandsOf<bf16, R>(args, acc);
      const unsigned tiles = BlocksOf(heads.tokens, M::kBlockRows);
      constexpr unsigned kThreads = M::kThreads;
      TEMPER_RETURN_IF_ERROR(FindDeltas(x.d_o, x.o, heads, x.delta_TH, stream));
      TEMPER_RETURN_IF_ERROR(TEMPER_LAUNCH((MatrixQueryGradients<M, R, Sees>),
                                           (gpuDim3{tiles, static_cast<unsigned>(heads.heads)}), kThreads, stream, x,
                                           heads, sees));
      return MakeKeyGradients(args, x, heads, stream,
                              [&]<class Out>(const BackwardOperands<bf16, Out>& to, unsigned parts) {
                                return TEMPER_LAUNCH((MatrixKeyGradients<M, Out, Sees>),
                                                     (gpuDim3{tiles, static_cast<unsigned>(heads.kv_heads), parts}),
                                                     kThreads, stream, to, heads, sees);
                              });
    });
  });
}
template std::unique_ptr<Kernel> MakeMatrixAttentionBackward<bf16>(const Heads&, const Causal&, bool, const Context&);
template std::unique_ptr<Kernel> MakeMatrixAttentionBackward<float>(const Heads&, const Dealt&, bool, const Context&);

}  // namespace temper::gpu
