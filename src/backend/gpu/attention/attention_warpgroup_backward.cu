// The backward of attention and of the steps of a ring on Hopper's warpgroups: delta, then attention_tiling.h's two
// kernels. d_q has a block per 128 queries and head, which meets tiles of 64 keys; d_k and d_v one per 128 keys and
// part of the heads that share them (GpuAttentionScratch), which meets tiles of 64 queries of these heads, in order.
#include "backend/gpu/attention/attention_warpgroup.h"

namespace temper::gpu {

#if TEMPER_WGMMA
namespace {

constexpr int kMet = 64;  // rows of a tile that comes by

template <int kE>
struct Backward {
  using Own = SwizzledTile<kBlockRows, kE>;
  using Met = SwizzledTile<kMet, kE>;
  // Queries and d_o; keys three times, since those of the tile before are still multiplied with; values twice.
  static constexpr int kQueryWindow = 2 * Own::kElements + 5 * Met::kElements;
  // Keys and values; queries and d_o twice.
  static constexpr int kKeyWindow = 2 * Own::kElements + 4 * Met::kElements;
};

template <int kE, class R, class Sees>
__global__ void __launch_bounds__(kWarpgroupThreads, 1)
    WarpgroupQueryGradients(BackwardOperands<bf16, R> x, Heads heads, Sees sees) {
  using Own = typename Backward<kE>::Own;
  using Met = typename Backward<kE>::Met;
  TEMPER_WINDOW(Bf16Bits, window, Backward<kE>::kQueryWindow);
  CheckAlignment(window);
  const Own q_tile = {0}, d_o_tile = {Own::kElements};
  const auto met = [](int i) { return Met{2 * Own::kElements + i * Met::kElements}; };
  const auto keys = [&](int j) { return met(j % 3); };
  const auto values = [&](int j) { return met(3 + j % 2); };
  const int lane = static_cast<int>(threadIdx.x) % 32, group = static_cast<int>(threadIdx.x) / kWarpgroup;
  const int q_begin = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kBlockRows, T = static_cast<int>(heads.tokens);
  const int q_end = T - q_begin < kBlockRows ? T : q_begin + kBlockRows, h = static_cast<int>(blockIdx.y);
  const int begin = WarpRow(q_begin);
  const int64_t kv_head = heads.KvHead(h), E = heads.E;
  float lse[2], delta[2];  // of this lane's two queries
  for (int i = 0; i < 2; ++i) {
    const int t = begin + Mma::Row(lane, i);
    lse[i] = t < q_end ? x.lse_TH[t * heads.heads + h] * kLog2E : 0;
    delta[i] = t < q_end ? x.delta_TH[t * heads.heads + h] : 0;
  }
  const SeenKeys<Mma> seen(heads, sees, x.document_start_T, q_begin, q_end, begin, lane);
  const int tiles = seen.Tiles(kMet);
  const auto copy_met = [&](int j) {
    const int s_begin = seen.begin + j * kMet;
    CopyRows(x.k, s_begin, seen.any_end, heads.kv_heads, kv_head, E, window, keys(j));
    CopyRows(x.v, s_begin, seen.any_end, heads.kv_heads, kv_head, E, window, values(j));
    CloseCopies();
  };
  const float scale = heads.scale * kLog2E;
  FragmentC score[kMet / 8], d_p[kMet / 8], out[kE / 8] = {};
  FragmentA d_s[kMet / 16];
  const auto start_products = [&](int j) {
    StartScores(window, q_tile, group * kWarpgroupRows, keys(j), score);
    StartScores(window, d_o_tile, group * kWarpgroupRows, values(j), d_p);
  };
  // score becomes d_s.
  const auto find_gradients = [&](int j) {
    const int s_begin = seen.begin + j * kMet;
    if (!seen.All(s_begin, kMet)) seen.Mask(s_begin, lane, score);
    TEMPER_UNROLL
    for (int n = 0; n < kMet / 8; ++n) {
      TEMPER_UNROLL
      for (int i = 0; i < 4; ++i) {
        score[n].x[i] = Exp2Flush(Fma(scale, score[n].x[i], -lse[i / 2])) * (d_p[n].x[i] - delta[i / 2]);
      }
    }
  };

  if (tiles > 0) {
    CopyRows(x.q, q_begin, q_end, heads.heads, h, E, window, q_tile);
    CopyRows(x.d_o, q_begin, q_end, heads.heads, h, E, window, d_o_tile);
    copy_met(0);
    MeetAtTile();
    if (tiles > 1) copy_met(1);
    FenceRegisters(score, d_p);
    start_products(0);
    AwaitProducts<0>(score, d_p);
    find_gradients(0);
    PackWeights(score, d_s);
    for (int j = 1; j < tiles; ++j) {
      MeetAtTile();
      if (j + 1 < tiles) copy_met(j + 1);
      FenceRegisters(score, d_p, d_s, out);
      start_products(j);
      StartWeighted(window, d_s, keys(j - 1), out);
      AwaitProducts<1>(score, d_p);
      find_gradients(j);
      AwaitProducts<0>(out, d_s);
      PackWeights(score, d_s);
    }
    FenceRegisters(d_s, out);
    StartWeighted(window, d_s, keys(tiles - 1), out);
    AwaitProducts<0>(out);
  }
  StoreRows<Mma>(out, heads.scale, x.d_q_before, begin, q_end, heads.heads, h, E, lane, x.d_q);
}

struct RowSums {
  float lse, delta;  // in units of log 2; as it is
};
template <int kE, class R, class Sees>
__global__ void __launch_bounds__(kWarpgroupThreads, 1)
    WarpgroupKeyGradients(BackwardOperands<bf16, R> x, Heads heads, Sees sees) {
  using Own = typename Backward<kE>::Own;
  using Met = typename Backward<kE>::Met;
  TEMPER_WINDOW(Bf16Bits, window, Backward<kE>::kKeyWindow);
  CheckAlignment(window);
  TEMPER_SHARED(RowSums, sums, 2 * kMet);
  TEMPER_SHARED(SeenPlaces, seen, 2 * kMet);
  TEMPER_SHARED(int, places, kBlockRows);  // of the block's keys
  const Own k_tile = {0}, v_tile = {Own::kElements};
  const auto met = [](int i) { return Met{2 * Own::kElements + i * Met::kElements}; };
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, group = thread / kWarpgroup;
  // 32 bits, as places have: registers are short here.
  const int E = static_cast<int>(heads.E), T = static_cast<int>(heads.tokens);
  const int k_begin = static_cast<int>(blockIdx.x) * kBlockRows, kv_head = static_cast<int>(blockIdx.y);
  const int k_end = T - k_begin < kBlockRows ? T : k_begin + kBlockRows;
  const int of_part = static_cast<int>(heads.heads / heads.kv_heads) / static_cast<int>(gridDim.z);  // heads
  const int q_first = static_cast<int>(sees.FirstQuery(k_begin));
  const int of_head = TilesThatSee(heads, sees, x.document_start_T, q_first, k_end, kMet);
  const int tiles = of_head * of_part;
  const float scale = heads.scale * kLog2E;
  const int begin = WarpRow(k_begin);
  if (thread < kBlockRows) places[thread] = static_cast<int>(sees.PlaceOfKey(k_begin + thread));
  // Of the tile that is copied next.
  int h = (kv_head * static_cast<int>(gridDim.z) + static_cast<int>(blockIdx.z)) * of_part, q_begin = q_first;
  const auto copy_met = [&](int i) {
    CopyRows(x.q, q_begin, T, heads.heads, h, E, window, met(i % 2));
    CopyRows(x.d_o, q_begin, T, heads.heads, h, E, window, met(2 + i % 2));
    CloseCopies();
    if (thread < kMet) {
      const int t = q_begin + thread, at = i % 2 * kMet + thread;
      sums[at] =
          t < T ? RowSums{x.lse_TH[int64_t{t} * heads.heads + h] * kLog2E, x.delta_TH[int64_t{t} * heads.heads + h]}
                : RowSums{};
      seen[at] = SeenPlaces::Of(heads, sees, x.document_start_T, t);
    }
    q_begin += kMet;
    if (q_begin == q_first + of_head * kMet) {
      ++h;
      q_begin = q_first;
    }
  };
  FragmentC out_k[kE / 8] = {}, out_v[kE / 8] = {};
  CopyRows(x.k, k_begin, k_end, heads.kv_heads, kv_head, E, window, k_tile);
  CopyRows(x.v, k_begin, k_end, heads.kv_heads, kv_head, E, window, v_tile);
  if (tiles > 0) copy_met(0);
  for (int i = 0; i < tiles; ++i) {
    MeetAtTile();
    if (i + 1 < tiles) copy_met(i + 1);
    const Met q_tile = met(i % 2), d_o_tile = met(2 + i % 2);
    FragmentC p[kMet / 8], d_s[kMet / 8];
    FragmentA weights[kMet / 16], more_weights[kMet / 16];
    FenceRegisters(p, d_s);
    StartScores(window, k_tile, group * kWarpgroupRows, q_tile, p);
    StartScores(window, v_tile, group * kWarpgroupRows, d_o_tile, d_s);
    AwaitProducts<1>(p);
    const int slot = i % 2 * kMet, column = lane % 4 * 2;
    if (!AllSee(seen, slot, kMet, places, kBlockRows)) MaskKeys<Mma>(seen, slot, places, WarpRow(0), lane, p);
    TEMPER_UNROLL
    for (int n = 0; n < kMet / 8; ++n) {
      TEMPER_UNROLL
      for (int j = 0; j < 2; ++j) {
        const float lse = static_cast<RowSums>(sums[slot + n * 8 + column + j]).lse;
        p[n].x[j] = Exp2Flush(Fma(scale, p[n].x[j], -lse));
        p[n].x[2 + j] = Exp2Flush(Fma(scale, p[n].x[2 + j], -lse));
      }
    }
    PackWeights(p, weights);
    FenceRegisters(weights, out_v);
    StartWeighted(window, weights, d_o_tile, out_v);
    AwaitProducts<1>(d_s);
    TEMPER_UNROLL
    for (int n = 0; n < kMet / 8; ++n) {
      TEMPER_UNROLL
      for (int j = 0; j < 2; ++j) {
        const float delta = static_cast<RowSums>(sums[slot + n * 8 + column + j]).delta;
        d_s[n].x[j] = p[n].x[j] * (d_s[n].x[j] - delta);
        d_s[n].x[2 + j] = p[n].x[2 + j] * (d_s[n].x[2 + j] - delta);
      }
    }
    PackWeights(d_s, more_weights);
    FenceRegisters(more_weights, out_k);
    StartWeighted(window, more_weights, q_tile, out_k);
    AwaitProducts<0>(out_v, out_k);
  }
  const int64_t part = int64_t{blockIdx.z} * heads.tokens * heads.kv_heads * E;
  StoreRows<Mma>(out_k, heads.scale, nullptr, begin, k_end, heads.kv_heads, kv_head, E, lane, x.d_k + part);
  StoreRows<Mma>(out_v, 1, nullptr, begin, k_end, heads.kv_heads, kv_head, E, lane, x.d_v + part);
}

template <int kE, class R, class Sees>
std::unique_ptr<Kernel> Make(const Heads& heads, const Sees& sees, bool acc, gpuStream_t stream) {
  constexpr int kQueryBytes = Backward<kE>::kQueryWindow * 2, kKeyBytes = Backward<kE>::kKeyWindow * 2;
  if (!AllowWindow(WarpgroupQueryGradients<kE, R, Sees>, kQueryBytes) ||
      !AllowWindow(WarpgroupKeyGradients<kE, R, Sees>, kKeyBytes) ||
      !AllowWindow(WarpgroupKeyGradients<kE, float, Sees>, kKeyBytes)) {
    return nullptr;
  }
  return MakeKernel([=](const KernelArgs& args) {
    if (heads.tokens == 0) return OkStatus();
    const auto x = BackwardOperandsOf<bf16, R>(args, acc);
    const auto blocks = static_cast<unsigned>((heads.tokens + kBlockRows - 1) / kBlockRows);
    constexpr unsigned kThreads = kWarpgroupThreads;
    TEMPER_RETURN_IF_ERROR(FindDeltas(x.d_o, x.o, heads, x.delta_TH, stream));
    TEMPER_RETURN_IF_ERROR(TEMPER_LAUNCH_WINDOW((WarpgroupQueryGradients<kE, R, Sees>),
                                                (gpuDim3{blocks, static_cast<unsigned>(heads.heads)}), kThreads,
                                                kQueryBytes, stream, x, heads, sees));
    return MakeKeyGradients(
        args, x, heads, stream, [&]<class Out>(const BackwardOperands<bf16, Out>& to, unsigned parts) {
          return TEMPER_LAUNCH_WINDOW((WarpgroupKeyGradients<kE, Out, Sees>),
                                      (gpuDim3{blocks, static_cast<unsigned>(heads.kv_heads), parts}), kThreads,
                                      kKeyBytes, stream, to, heads, sees);
        });
  });
}

}  // namespace

template <class R, class Sees>
std::unique_ptr<Kernel> MakeWarpgroupAttentionBackward(const Heads& heads, const Sees& sees, bool acc,
                                                       const Context& context) {
  if (!FitsWarpgroups(heads, context)) return nullptr;
  return heads.E <= 64 ? Make<64, R>(heads, sees, acc, context.stream) : Make<128, R>(heads, sees, acc, context.stream);
}

#else

template <class R, class Sees>
std::unique_ptr<Kernel> MakeWarpgroupAttentionBackward(const Heads&, const Sees&, bool, const Context&) {
  return nullptr;
}

#endif

template std::unique_ptr<Kernel> MakeWarpgroupAttentionBackward<bf16>(const Heads&, const Causal&, bool,
                                                                      const Context&);
template std::unique_ptr<Kernel> MakeWarpgroupAttentionBackward<float>(const Heads&, const Dealt&, bool,
                                                                       const Context&);

}  // namespace temper::gpu
