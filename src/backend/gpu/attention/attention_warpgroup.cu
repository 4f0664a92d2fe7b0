// attention and the steps of a ring on Hopper's warpgroups: attention_tiling.h's algorithm, a block per 128 queries and
// head, tiles of 128 keys. The scores of a tile are enqueued before the values of the tile before it are weighted, so
// that the units go on while exponentials are taken (Shah et al. 2024, FlashAttention-3).
#include "backend/gpu/attention/attention_warpgroup.h"

namespace temper::gpu {

#if TEMPER_WGMMA
namespace {

template <int kE>
struct Forward {
  using Tile = SwizzledTile<kBlockRows, kE>;
  static constexpr int kTiles = 5;  // queries; keys and values twice
  static constexpr int kWindow = kTiles * Tile::kElements;
};

template <int kE, class R, class Sees>
__global__ void __launch_bounds__(kWarpgroupThreads, 1)
    WarpgroupAttention(ForwardOperands<bf16, R> x, Heads heads, Sees sees, int64_t* fault) {
  using Tile = typename Forward<kE>::Tile;
  TEMPER_WINDOW(Bf16Bits, window, Forward<kE>::kWindow);
  CheckAlignment(window);
  const auto place = [](int i) { return Tile{i * Tile::kElements}; };
  const int lane = static_cast<int>(threadIdx.x) % 32, group = static_cast<int>(threadIdx.x) / kWarpgroup;
  // The last queries see the most keys: their blocks begin first.
  const int q_begin = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kBlockRows, T = static_cast<int>(heads.tokens);
  const int q_end = T - q_begin < kBlockRows ? T : q_begin + kBlockRows, h = static_cast<int>(blockIdx.y);
  const int begin = WarpRow(q_begin);
  const int64_t kv_head = heads.KvHead(h), E = heads.E;
  const int t = q_begin + static_cast<int>(threadIdx.x);
  if (h == 0 && t < q_end) {
    const int start = x.document_start_T[t];
    if (start < 0 || start > sees.PlaceOf(t) || (t > 0 && start < x.document_start_T[t - 1])) *fault = 1 + t;
  }
  const SeenKeys<Mma> seen(heads, sees, x.document_start_T, q_begin, q_end, begin, lane);
  const int tiles = seen.Tiles(kBlockRows);
  const auto copy_keys = [&](int j) {
    CopyRows(x.k, seen.begin + j * kBlockRows, seen.any_end, heads.kv_heads, kv_head, E, window, place(1 + j % 2));
  };
  const auto copy_values = [&](int j) {
    CopyRows(x.v, seen.begin + j * kBlockRows, seen.any_end, heads.kv_heads, kv_head, E, window, place(3 + j % 2));
  };
  const float scale = heads.scale * kLog2E;
  FragmentC score[kBlockRows / 8], out[kE / 8] = {};
  FragmentA p[kBlockRows / 16];
  RunningSoftmax<Mma> softmax(x, heads, begin, q_end, h, lane, out);
  const auto weigh = [&](int j) {
    const int s_begin = seen.begin + j * kBlockRows;
    if (!seen.All(s_begin, kBlockRows)) seen.Mask(s_begin, lane, score);
    softmax.Weigh(score, scale);
  };

  if (tiles > 0) {
    CopyRows(x.q, q_begin, q_end, heads.heads, h, E, window, place(0));
    copy_keys(0);
    CloseCopies();
    MeetAtTile();
    if (tiles > 1) copy_keys(1);
    copy_values(0);
    CloseCopies();
    FenceRegisters(score);
    StartScores(window, place(0), group * kWarpgroupRows, place(1), score);
    AwaitProducts<0>(score);
    weigh(0);
    if (x.lse_before != nullptr) softmax.Rescale(out);
    PackWeights(score, p);
    for (int j = 1; j < tiles; ++j) {
      MeetAtTile();
      if (j + 1 < tiles) copy_keys(j + 1);
      copy_values(j);
      CloseCopies();
      FenceRegisters(score, p, out);
      StartScores(window, place(0), group * kWarpgroupRows, place(1 + j % 2), score);
      StartWeighted(window, p, place(3 + (j - 1) % 2), out);
      AwaitProducts<1>(score);
      weigh(j);
      AwaitProducts<0>(out, p);
      softmax.Rescale(out);
      PackWeights(score, p);
    }
    MeetAtTile();
    FenceRegisters(p, out);
    StartWeighted(window, p, place(3 + (tiles - 1) % 2), out);
    AwaitProducts<0>(out);
  }
  softmax.Store(out, x, heads, begin, q_end, h, lane);
}

template <int kE, class R, class Sees>
std::unique_ptr<Kernel> Make(const Heads& heads, const Sees& sees, bool acc, gpuStream_t stream, Faults::Word* fault) {
  constexpr int kBytes = Forward<kE>::kWindow * 2;
  if (!AllowWindow(WarpgroupAttention<kE, R, Sees>, kBytes)) return nullptr;
  return MakeKernel([=, fault = std::move(*fault)](const KernelArgs& args) {
    if (heads.tokens == 0) return OkStatus();
    const auto x = ForwardOperandsOf<bf16, R>(args, acc);
    const gpuDim3 blocks = {static_cast<unsigned>((heads.tokens + kBlockRows - 1) / kBlockRows),
                            static_cast<unsigned>(heads.heads)};
    return TEMPER_LAUNCH_WINDOW((WarpgroupAttention<kE, R, Sees>), blocks, unsigned{kWarpgroupThreads}, kBytes, stream,
                                x, heads, sees, fault.get());
  });
}

}  // namespace

template <class R, class Sees>
std::unique_ptr<Kernel> MakeWarpgroupAttention(const Heads& heads, const Sees& sees, bool acc, const Context& context,
                                               Faults::Word* fault) {
  if (!FitsWarpgroups(heads, context)) return nullptr;
  return heads.E <= 64 ? Make<64, R>(heads, sees, acc, context.stream, fault)
                       : Make<128, R>(heads, sees, acc, context.stream, fault);
}

#else

template <class R, class Sees>
std::unique_ptr<Kernel> MakeWarpgroupAttention(const Heads&, const Sees&, bool, const Context&, Faults::Word*) {
  return nullptr;
}

#endif

template std::unique_ptr<Kernel> MakeWarpgroupAttention<bf16>(const Heads&, const Causal&, bool, const Context&,
                                                              Faults::Word*);
template std::unique_ptr<Kernel> MakeWarpgroupAttention<float>(const Heads&, const Dealt&, bool, const Context&,
                                                               Faults::Word*);

}  // namespace temper::gpu
