// The backward of attention and of the steps of a ring on Hopper's warpgroups: delta, then attention_tiling.h's two
// kernels. d_q has a block per 128 queries and head, which meets tiles of 64 keys; d_k and d_v one per 128 keys and
// head of theirs, which meets tiles of 64 queries of the heads that share them, in order.
#include "backend/gpu/attention_warpgroup.h"

namespace temper::gpu {

#if TEMPER_WGMMA
namespace {

constexpr int kMet = 64;  // rows of a tile that comes by

template <int kE>
struct Backward {
  using Own = SwizzledTile<kBlockRows, kE>;
  using Met = SwizzledTile<kMet, kE>;
  // Queries and d_o; keys three times, since those of the tile before are still multiplied with; values twice.
  static constexpr int kQueryWindow = 2 * Own::kElements + 5 * Met::kElements + kWindowSlack;
  // Keys and values; queries and d_o twice.
  static constexpr int kKeyWindow = 2 * Own::kElements + 4 * Met::kElements + kWindowSlack;
};

template <class R>
struct Operands {
  const bf16 *d_o, *q, *k, *v;
  const float *lse_TH, *delta_TH;
  const int* document_start_T;
  R *d_q, *d_k, *d_v;
  const float* d_q_before;  // of earlier steps, or nullptr
};

template <int kE, class R, class Sees>
__global__ void __launch_bounds__(kWarpgroupThreads, 1) WarpgroupQueryGradients(Operands<R> x, Heads heads, Sees sees) {
  using Own = typename Backward<kE>::Own;
  using Met = typename Backward<kE>::Met;
  TEMPER_WINDOW(Bf16Bits, window, Backward<kE>::kQueryWindow);
  const int base = FirstTile(window);
  const Own q_tile = {base}, d_o_tile = {base + Own::kElements};
  const auto met = [base](int i) { return Met{base + 2 * Own::kElements + i * Met::kElements}; };
  const auto keys = [&](int j) { return met(j % 3); };
  const auto values = [&](int j) { return met(3 + j % 2); };
  const int lane = static_cast<int>(threadIdx.x) % 32, group = static_cast<int>(threadIdx.x) / kWarpgroup;
  const int in_block = group * kWarpgroupRows + static_cast<int>(threadIdx.x) % kWarpgroup / 32 * 16 + lane / 4;
  const int64_t q_begin = int64_t{gridDim.x - 1 - blockIdx.x} * kBlockRows, h = blockIdx.y, E = heads.E;
  const int64_t q_end = q_begin + kBlockRows < heads.tokens ? q_begin + kBlockRows : heads.tokens;
  const int64_t kv_head = heads.KvHead(h), row = q_begin + in_block;
  float lse[2], delta[2];  // of this lane's two queries
  for (int i = 0; i < 2; ++i) {
    const int64_t t = row + i * 8;
    lse[i] = t < q_end ? x.lse_TH[t * heads.heads + h] * kLog2E : 0;
    delta[i] = t < q_end ? x.delta_TH[t * heads.heads + h] : 0;
  }
  const SeenKeys seen(heads, sees, x.document_start_T, q_begin, q_end, in_block);
  const int tiles = seen.Tiles(kMet);
  const auto copy_met = [&](int j) {
    const int64_t s_begin = seen.begin + int64_t{j} * kMet;
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
    seen.Mask(seen.begin + int64_t{j} * kMet, lane, score);
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
  if (row < q_end) StoreSums<0>(out, heads.scale, x.d_q_before, row, heads.heads, h, E, lane, x.d_q);
  if (row + 8 < q_end) StoreSums<1>(out, heads.scale, x.d_q_before, row, heads.heads, h, E, lane, x.d_q);
}

// How many tiles of queries from `q_first` on see any of the keys before `k_end`. Later queries see no earlier keys.
template <class Sees>
__device__ __forceinline__ int TilesThatSee(const Heads& heads, const Sees& sees, const int* document_start_T,
                                            int64_t q_first, int64_t k_end) {
  int low = 0, high = q_first < heads.tokens ? static_cast<int>((heads.tokens - q_first + kMet - 1) / kMet) : 0;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (sees.First(heads, document_start_T, q_first + int64_t{middle} * kMet) < k_end) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

struct RowSums {
  float lse, delta;  // in units of log 2; as it is
};
struct SeenPlaces {
  int first, last;  // of keys
};

template <int kE, class R, class Sees>
__global__ void __launch_bounds__(kWarpgroupThreads, 1) WarpgroupKeyGradients(Operands<R> x, Heads heads, Sees sees) {
  using Own = typename Backward<kE>::Own;
  using Met = typename Backward<kE>::Met;
  TEMPER_WINDOW(Bf16Bits, window, Backward<kE>::kKeyWindow);
  TEMPER_SHARED(RowSums, sums, 2 * kMet);
  TEMPER_SHARED(SeenPlaces, seen, 2 * kMet);
  const int base = FirstTile(window);
  const Own k_tile = {base}, v_tile = {base + Own::kElements};
  const auto met = [base](int i) { return Met{base + 2 * Own::kElements + i * Met::kElements}; };
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, group = thread / kWarpgroup;
  const int in_block = group * kWarpgroupRows + thread % kWarpgroup / 32 * 16 + lane / 4;
  // 32 bits, as places have: registers are short here.
  const int E = static_cast<int>(heads.E), T = static_cast<int>(heads.tokens);
  const int k_begin = static_cast<int>(blockIdx.x) * kBlockRows, kv_head = static_cast<int>(blockIdx.y);
  const int k_end = T - k_begin < kBlockRows ? T : k_begin + kBlockRows, row = k_begin + in_block;
  const int sharing = static_cast<int>(heads.heads / heads.kv_heads);
  const int q_first = static_cast<int>(sees.FirstQuery(k_begin));
  const int of_head = TilesThatSee(heads, sees, x.document_start_T, q_first, k_end);
  const int tiles = of_head * sharing;
  const float scale = heads.scale * kLog2E;
  // Of this lane's two keys, and of the first and the last of this warpgroup's; behind the last one nothing is stored.
  const int place[2] = {static_cast<int>(sees.PlaceOfKey(row)), static_cast<int>(sees.PlaceOfKey(row + 8))};
  const int first_place = static_cast<int>(sees.PlaceOfKey(k_begin + group * kWarpgroupRows)),
            last_place = static_cast<int>(sees.PlaceOfKey(k_begin + (group + 1) * kWarpgroupRows - 1));
  // Of the tile that is copied next.
  int h = kv_head * sharing, q_begin = q_first;
  const auto copy_met = [&](int i) {
    CopyRows(x.q, q_begin, T, heads.heads, h, E, window, met(i % 2));
    CopyRows(x.d_o, q_begin, T, heads.heads, h, E, window, met(2 + i % 2));
    CloseCopies();
    if (thread < kMet) {
      const int t = q_begin + thread, at = i % 2 * kMet + thread;
      sums[at] =
          t < T ? RowSums{x.lse_TH[int64_t{t} * heads.heads + h] * kLog2E, x.delta_TH[int64_t{t} * heads.heads + h]}
                : RowSums{};
      seen[at] = t < T ? SeenPlaces{static_cast<int>(sees.FirstPlace(heads, x.document_start_T, t)),
                                    static_cast<int>(sees.PlaceOf(t))}
                       : SeenPlaces{0, -1};  // what no query is sees no key
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
    const SeenPlaces by_first = seen[slot], by_last = seen[slot + kMet - 1];
    if (by_first.last < last_place || by_last.first > first_place || by_last.last < 0) {
      TEMPER_UNROLL
      for (int n = 0; n < kMet / 8; ++n) {
        TEMPER_UNROLL
        for (int j = 0; j < 4; ++j) {
          const SeenPlaces of = seen[slot + n * 8 + column + j % 2];
          if (place[j / 2] < of.first || place[j / 2] > of.last) p[n].x[j] = -INFINITY;
        }
      }
    }
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
  const auto store = [&]<int kHalf>() {
    if (row + kHalf * 8 >= k_end) return;
    StoreSums<kHalf>(out_k, heads.scale, nullptr, row, heads.kv_heads, kv_head, E, lane, x.d_k);
    StoreSums<kHalf>(out_v, 1, nullptr, row, heads.kv_heads, kv_head, E, lane, x.d_v);
  };
  store.template operator()<0>();
  store.template operator()<1>();
}

template <int kE, class R, class Sees>
std::unique_ptr<Kernel> Make(const Heads& heads, const Sees& sees, bool acc, gpuStream_t stream) {
  constexpr int kQueryBytes = Backward<kE>::kQueryWindow * 2, kKeyBytes = Backward<kE>::kKeyWindow * 2;
  if (!AllowWindow(WarpgroupQueryGradients<kE, R, Sees>, kQueryBytes) ||
      !AllowWindow(WarpgroupKeyGradients<kE, R, Sees>, kKeyBytes)) {
    return nullptr;
  }
  return MakeKernel([=](const KernelArgs& args) {
    if (heads.tokens == 0) return OkStatus();
    float* const delta = reinterpret_cast<float*>(args.workspace);
    const Operands<R> x = {.d_o = In<const bf16>(args, 0),
                           .q = In<const bf16>(args, 1),
                           .k = In<const bf16>(args, 2),
                           .v = In<const bf16>(args, 3),
                           .lse_TH = In<const float>(args, 5),
                           .delta_TH = delta,
                           .document_start_T = In<const int>(args, 6),
                           .d_q = Out<R>(args, 0),
                           .d_k = Out<R>(args, 1),
                           .d_v = Out<R>(args, 2),
                           .d_q_before = acc ? In<const float>(args, 7) : nullptr};
    const auto blocks = static_cast<unsigned>((heads.tokens + kBlockRows - 1) / kBlockRows);
    constexpr unsigned kThreads = kWarpgroupThreads;
    TEMPER_RETURN_IF_ERROR(FindDeltas(x.d_o, In<const bf16>(args, 4), heads, delta, stream));
    TEMPER_RETURN_IF_ERROR(TEMPER_LAUNCH_WINDOW((WarpgroupQueryGradients<kE, R, Sees>),
                                                (gpuDim3{blocks, static_cast<unsigned>(heads.heads)}), kThreads,
                                                kQueryBytes, stream, x, heads, sees));
    return TEMPER_LAUNCH_WINDOW((WarpgroupKeyGradients<kE, R, Sees>),
                                (gpuDim3{blocks, static_cast<unsigned>(heads.kv_heads)}), kThreads, kKeyBytes, stream,
                                x, heads, sees);
  });
}

template <class R, class Sees>
std::unique_ptr<Kernel> MakeFor(const Heads& heads, const Sees& sees, bool acc, const Context& context) {
  if (!FitsWarpgroups(heads, context)) return nullptr;
  return heads.E <= 64 ? Make<64, R>(heads, sees, acc, context.stream) : Make<128, R>(heads, sees, acc, context.stream);
}

}  // namespace

std::unique_ptr<Kernel> MakeWarpgroupAttentionBackward(const Heads& heads, const Context& context) {
  return MakeFor<bf16>(heads, Causal(), /*acc=*/false, context);
}
std::unique_ptr<Kernel> MakeWarpgroupAttentionStepBackward(const Heads& heads, const Dealt& dealt, bool acc,
                                                           const Context& context) {
  return MakeFor<float>(heads, dealt, acc, context);
}

#else

std::unique_ptr<Kernel> MakeWarpgroupAttentionBackward(const Heads&, const Context&) {
  return nullptr;
}
std::unique_ptr<Kernel> MakeWarpgroupAttentionStepBackward(const Heads&, const Dealt&, bool, const Context&) {
  return nullptr;
}

#endif

}  // namespace temper::gpu
