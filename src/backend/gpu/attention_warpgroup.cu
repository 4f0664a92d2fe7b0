// attention and the steps of a ring on Hopper's warpgroups: attention_tiling.h's algorithm, a block per 128 queries and
// head, tiles of 128 keys. The scores of a tile are enqueued before the values of the tile before it are weighted, so
// that the units go on while exponentials are taken (Shah et al. 2024, FlashAttention-3).
#include "backend/gpu/attention_warpgroup.h"

namespace temper::gpu {

#if TEMPER_WGMMA
namespace {

template <int kE>
struct Forward {
  using Tile = SwizzledTile<kBlockRows, kE>;
  static constexpr int kTiles = 5;  // queries; keys and values twice
  static constexpr int kWindow = kTiles * Tile::kElements + kWindowSlack;
};

// p = exp2(scale score - largest so far), of this lane's two rows, `largest` in units of log 2; `rescale` takes what
// was summed up before to the new largest.
template <int kTiles>
__device__ __forceinline__ void Softmax(FragmentC (&score)[kTiles], float scale, float (&largest)[2], float (&sum)[2],
                                        float (&rescale)[2]) {
  float here[2] = {-INFINITY, -INFINITY};
  TEMPER_UNROLL
  for (int n = 0; n < kTiles; ++n) {
    TEMPER_UNROLL
    for (int i = 0; i < 4; ++i) here[i / 2] = fmaxf(here[i / 2], score[n].x[i]);  // a NaN comes back through p
  }
  TEMPER_UNROLL
  for (int i = 0; i < 2; ++i) {
    const float before = largest[i];
    largest[i] = fmaxf(before, ReduceQuad<Larger>(here[i]) * scale);
    // No key of this query yet: nothing to scale, and nothing that exp2 could take.
    const float from = largest[i] > -INFINITY ? largest[i] : 0;
    rescale[i] = Exp2Flush(before - from);
    float sum_here = 0;
    TEMPER_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      TEMPER_UNROLL
      for (int j = 0; j < 2; ++j) {
        float& p = score[n].x[i * 2 + j];
        p = Exp2Flush(Fma(p, scale, -from));
        sum_here += p;
      }
    }
    sum[i] = Fma(sum[i], rescale[i], sum_here);  // of this lane's columns
  }
}

template <class R>
struct Operands {
  const bf16 *q, *k, *v;
  const int* document_start_T;
  R* o;
  float* lse_TH;
  const float *o_before, *lse_before;  // of the keys of earlier steps, or nullptr
};

template <int kE, class R, class Sees>
__global__ void __launch_bounds__(kWarpgroupThreads, 1)
    WarpgroupAttention(Operands<R> x, Heads heads, Sees sees, int64_t* fault) {
  using Tile = typename Forward<kE>::Tile;
  TEMPER_WINDOW(Bf16Bits, window, Forward<kE>::kWindow);
  const int base = FirstTile(window);
  const auto place = [base](int i) { return Tile{base + i * Tile::kElements}; };
  const int lane = static_cast<int>(threadIdx.x) % 32, group = static_cast<int>(threadIdx.x) / kWarpgroup;
  const int in_block = group * kWarpgroupRows + static_cast<int>(threadIdx.x) % kWarpgroup / 32 * 16 + lane / 4;
  // The last queries see the most keys: their blocks begin first.
  const int64_t q_begin = int64_t{gridDim.x - 1 - blockIdx.x} * kBlockRows, h = blockIdx.y, E = heads.E;
  const int64_t q_end = q_begin + kBlockRows < heads.tokens ? q_begin + kBlockRows : heads.tokens;
  const int64_t kv_head = heads.KvHead(h);
  if (h == 0 && q_begin + threadIdx.x < q_end) {
    const int64_t t = q_begin + threadIdx.x;
    const int start = x.document_start_T[t];
    if (start < 0 || start > sees.PlaceOf(t) || (t > 0 && start < x.document_start_T[t - 1])) *fault = 1 + t;
  }
  const int64_t row = q_begin + in_block;
  const SeenKeys seen(heads, sees, x.document_start_T, q_begin, q_end, in_block);
  const int tiles = seen.Tiles(kBlockRows);
  const auto copy_keys = [&](int j) {
    CopyRows(x.k, seen.begin + int64_t{j} * kBlockRows, seen.any_end, heads.kv_heads, kv_head, E, window,
             place(1 + j % 2));
  };
  const auto copy_values = [&](int j) {
    CopyRows(x.v, seen.begin + int64_t{j} * kBlockRows, seen.any_end, heads.kv_heads, kv_head, E, window,
             place(3 + j % 2));
  };
  const float scale = heads.scale * kLog2E;
  FragmentC score[kBlockRows / 8], out[kE / 8] = {};
  FragmentA p[kBlockRows / 16];
  // The steps before are one more key, which scores their lse and has their o as value.
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, rescale[2];
  if (x.lse_before != nullptr) {
    TEMPER_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int64_t t = row + i / 2 * 8;
      if (t >= q_end) continue;
      largest[i / 2] = x.lse_before[t * heads.heads + h] * kLog2E;
      sum[i / 2] = lane % 4 == 0 ? 1 : 0;
      TEMPER_UNROLL
      for (int n = 0; n < kE / 8; ++n) {
        const int64_t e = n * 8 + lane % 4 * 2 + i % 2;
        if (e < E) out[n].x[i] = x.o_before[(t * heads.heads + h) * E + e];
      }
    }
  }
  const auto softmax = [&](int j) {
    seen.Mask(seen.begin + int64_t{j} * kBlockRows, lane, score);
    Softmax(score, scale, largest, sum, rescale);
  };
  const auto rescale_out = [&] {
    TEMPER_UNROLL
    for (int n = 0; n < kE / 8; ++n) {
      TEMPER_UNROLL
      for (int i = 0; i < 4; ++i) out[n].x[i] *= rescale[i / 2];
    }
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
    softmax(0);
    if (x.lse_before != nullptr) rescale_out();
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
      softmax(j);
      AwaitProducts<0>(out, p);
      rescale_out();
      PackWeights(score, p);
    }
    MeetAtTile();
    FenceRegisters(p, out);
    StartWeighted(window, p, place(3 + (tiles - 1) % 2), out);
    AwaitProducts<0>(out);
  }
  TEMPER_UNROLL
  for (int i = 0; i < 2; ++i) sum[i] = ReduceQuad<Sum>(sum[i]);
  const auto store = [&]<int kHalf>() {
    const int64_t t = row + kHalf * 8;
    if (t >= q_end) return;
    StoreSums<kHalf>(out, 1 / sum[kHalf], nullptr, row, heads.heads, h, E, lane, x.o);
    if (lane % 4 == 0) x.lse_TH[t * heads.heads + h] = largest[kHalf] * kLn2 + Log(sum[kHalf]);
  };
  store.template operator()<0>();
  store.template operator()<1>();
}

template <int kE, class R, class Sees>
std::unique_ptr<Kernel> Make(const Heads& heads, const Sees& sees, bool acc, gpuStream_t stream, Faults::Word* fault) {
  constexpr int kBytes = Forward<kE>::kWindow * 2;
  if (!AllowWindow(WarpgroupAttention<kE, R, Sees>, kBytes)) return nullptr;
  return MakeKernel([=, fault = std::move(*fault)](const KernelArgs& args) {
    if (heads.tokens == 0) return OkStatus();
    const Operands<R> x = {.q = In<const bf16>(args, 0),
                           .k = In<const bf16>(args, 1),
                           .v = In<const bf16>(args, 2),
                           .document_start_T = In<const int>(args, 3),
                           .o = Out<R>(args, 0),
                           .lse_TH = Out<float>(args, 1),
                           .o_before = acc ? In<const float>(args, 4) : nullptr,
                           .lse_before = acc ? In<const float>(args, 5) : nullptr};
    const gpuDim3 blocks = {static_cast<unsigned>((heads.tokens + kBlockRows - 1) / kBlockRows),
                            static_cast<unsigned>(heads.heads)};
    return TEMPER_LAUNCH_WINDOW((WarpgroupAttention<kE, R, Sees>), blocks, unsigned{kWarpgroupThreads}, kBytes, stream,
                                x, heads, sees, fault.get());
  });
}

template <class R, class Sees>
std::unique_ptr<Kernel> MakeFor(const Heads& heads, const Sees& sees, bool acc, const Context& context,
                                Faults::Word* fault) {
  if (!FitsWarpgroups(heads, context)) return nullptr;
  return heads.E <= 64 ? Make<64, R>(heads, sees, acc, context.stream, fault)
                       : Make<128, R>(heads, sees, acc, context.stream, fault);
}

}  // namespace

std::unique_ptr<Kernel> MakeWarpgroupAttention(const Heads& heads, const Context& context, Faults::Word* fault) {
  return MakeFor<bf16>(heads, Causal(), /*acc=*/false, context, fault);
}
std::unique_ptr<Kernel> MakeWarpgroupAttentionStep(const Heads& heads, const Dealt& dealt, bool acc,
                                                   const Context& context, Faults::Word* fault) {
  return MakeFor<float>(heads, dealt, acc, context, fault);
}

#else

std::unique_ptr<Kernel> MakeWarpgroupAttention(const Heads&, const Context&, Faults::Word*) {
  return nullptr;
}
std::unique_ptr<Kernel> MakeWarpgroupAttentionStep(const Heads&, const Dealt&, bool, const Context&, Faults::Word*) {
  return nullptr;
}

#endif

}  // namespace temper::gpu
