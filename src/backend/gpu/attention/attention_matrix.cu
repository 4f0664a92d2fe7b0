// attention and the steps of a ring on matrix units: attention_tiling.h's algorithm, a block per kBlockRows queries and
// head. While scores are made the values come in, while values are weighted the next keys do.
#include "backend/gpu/attention/attention_matrix.h"

namespace temper::gpu {
namespace {

template <class M, class R, class Sees>
__global__ void TEMPER_LAUNCH_BOUNDS(M::kThreads, 2)
    MatrixAttention(ForwardOperands<bf16, R> x, Heads heads, Sees sees, int64_t* fault) {
  using U = typename M::Unit;
  using C = typename U::C;
  TEMPER_SHARED(Bf16Bits, k_tile, M::kElements);
  TEMPER_SHARED(Bf16Bits, v_tile, M::kElements);
  const int lane = static_cast<int>(threadIdx.x) % U::kLanes, warp = static_cast<int>(threadIdx.x) / U::kLanes;
  // The last queries see the most keys: their blocks begin first.
  const int q_begin = static_cast<int>(gridDim.x - 1 - blockIdx.x) * M::kBlockRows, T = static_cast<int>(heads.tokens);
  const int q_end = T - q_begin < M::kBlockRows ? T : q_begin + M::kBlockRows, h = static_cast<int>(blockIdx.y);
  const int begin = q_begin + warp * U::kRows;  // the warp's queries
  const int64_t kv_head = heads.KvHead(h), E = heads.E;
  const int t = q_begin + static_cast<int>(threadIdx.x);
  if (h == 0 && t < q_end) {
    const int start = x.document_start_T[t];
    if (start < 0 || start > sees.PlaceOf(t) || (t > 0 && start < x.document_start_T[t - 1])) *fault = 1 + t;
  }
  typename U::A q_rows[M::kSteps];
  LoadRows<M>(x.q, begin, q_end, heads.heads, h, E, lane, q_rows);
  const SeenKeys<U> seen(heads, sees, x.document_start_T, q_begin, q_end, begin, lane);
  const float scale = heads.scale * kLog2E;
  C out[M::kColumnTiles] = {};
  RunningSoftmax<U> softmax(x, heads, begin, q_end, h, lane, out);
  TileCopy<M> keys, values;
  keys.Start(x.k, seen.begin, seen.any_end, heads.kv_heads, kv_head, E, k_tile);
  for (int s_begin = seen.begin; s_begin < seen.any_end; s_begin += kTileRows) {
    values.Start(x.v, s_begin, seen.any_end, heads.kv_heads, kv_head, E, v_tile);
    keys.template Finish<1>(k_tile);
    TEMPER_SYNC_SHARED();  // keys are there
    C score[kTileRows / U::kColumns] = {};
    TEMPER_UNROLL
    for (int from = 0; from < kTileRows; from += U::kSpan) {
      AddScores<M>(q_rows, k_tile, from, lane, score + from / U::kColumns);
    }
    if constexpr (U::kCopiesBeside) TEMPER_SYNC_SHARED();  // and may be overwritten; by zeros, behind the last
    keys.Start(x.k, s_begin + kTileRows, seen.any_end, heads.kv_heads, kv_head, E, k_tile);
    if (!seen.All(s_begin, kTileRows)) seen.Mask(s_begin, lane, score);
    softmax.Weigh(score, scale);
    softmax.Rescale(out);
    values.template Finish<1>(v_tile);
    TEMPER_SYNC_SHARED();  // values are there
    TEMPER_UNROLL
    for (int from = 0; from < kTileRows; from += U::kSpan) {
      AddProduct<M>(score + from / U::kColumns, v_tile, from, lane, out);
    }
    if constexpr (U::kCopiesBeside) TEMPER_SYNC_SHARED();  // the next values overwrite them
  }
  softmax.Store(out, x, heads, begin, q_end, h, lane);
}

}  // namespace

template <class R, class Sees>
std::unique_ptr<Kernel> MakeMatrixAttention(const Heads& heads, const Sees& sees, bool acc, const Context& context,
                                            Faults::Word* fault) {
  return WithMatrixTile(heads, context.stream, [&]<class M>() {
    return MakeKernel([=, stream = context.stream, fault = std::move(*fault)](const KernelArgs& args) {
      if (heads.tokens == 0) return OkStatus();
      const gpuDim3 blocks = {BlocksOf(heads.tokens, M::kBlockRows), static_cast<unsigned>(heads.heads)};
      const auto x = ForwardOperandsOf<bf16, R>(args, acc);
      return TEMPER_LAUNCH((MatrixAttention<M, R, Sees>), blocks, unsigned{M::kThreads}, stream, x, heads, sees,
                           fault.get());
    });
  });
}
template std::unique_ptr<Kernel> MakeMatrixAttention<bf16>(const Heads&, const Causal&, bool, const Context&,
                                                           Faults::Word*);
template std::unique_ptr<Kernel> MakeMatrixAttention<float>(const Heads&, const Dealt&, bool, const Context&,
                                                            Faults::Word*);

}  // namespace temper::gpu
