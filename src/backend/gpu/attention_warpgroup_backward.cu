// attention_backward on Hopper's warpgroups: attention_backward.cu's three kernels. d_q has a block per 128 queries and
// head, which meets tiles of 64 keys; d_k and d_v one per 128 keys and head of theirs, which meets tiles of 64 queries
// of the heads that share them, in order.
#include "backend/gpu/attention_warpgroup.h"

namespace temper::gpu {

#if TEMPER_WARPGROUP_UNITS
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

struct Operands {
  const bf16 *d_o, *q, *k, *v;
  const float *lse_TH, *delta_TH;
  const int* document_start_T;
};

template <int kE>
__global__ void __launch_bounds__(kWarpgroupThreads, 1) WarpgroupQueryGradients(Operands x, Heads heads, bf16* d_q) {
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
  int query[2], first[2];
  float lse[2], delta[2];
  for (int i = 0; i < 2; ++i) {
    const int64_t t = row + i * 8;
    const bool valid = t < q_end;
    query[i] = static_cast<int>(t);
    first[i] = static_cast<int>(valid ? heads.FirstSeen(x.document_start_T, t) : q_end);
    lse[i] = valid ? x.lse_TH[t * heads.heads + h] * kLog2E : 0;
    delta[i] = valid ? x.delta_TH[t * heads.heads + h] : 0;
  }
  const int64_t k_begin = heads.FirstSeen(x.document_start_T, q_begin);
  const int64_t all_see_from = heads.FirstSeen(x.document_start_T, q_end - 1);
  const int tiles = static_cast<int>((q_end - k_begin + kMet - 1) / kMet);
  const auto copy_met = [&](int j) {
    const int64_t s_begin = k_begin + int64_t{j} * kMet;
    CopyRows(x.k, s_begin, q_end, heads.kv_heads, kv_head, E, window, keys(j));
    CopyRows(x.v, s_begin, q_end, heads.kv_heads, kv_head, E, window, values(j));
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
    const int64_t s_begin = k_begin + int64_t{j} * kMet;
    if (s_begin < all_see_from || s_begin + kMet - 1 > q_begin + group * kWarpgroupRows) {
      TEMPER_UNROLL
      for (int n = 0; n < kMet / 8; ++n) {
        TEMPER_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int s = static_cast<int>(s_begin) + n * 8 + lane % 4 * 2 + i % 2;
          if (s < first[i / 2] || s > query[i / 2]) score[n].x[i] = -INFINITY;
        }
      }
    }
    TEMPER_UNROLL
    for (int n = 0; n < kMet / 8; ++n) {
      TEMPER_UNROLL
      for (int i = 0; i < 4; ++i) {
        score[n].x[i] = Exp2Flush(Fma(scale, score[n].x[i], -lse[i / 2])) * (d_p[n].x[i] - delta[i / 2]);
      }
    }
  };

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
  using M = MatrixTile<kE>;
  if (query[0] < q_end) StoreHalf<M, 0>(out, heads.scale, row, heads.heads, h, E, lane, d_q);
  if (query[1] < q_end) StoreHalf<M, 1>(out, heads.scale, row, heads.heads, h, E, lane, d_q);
}

// How many tiles of queries from `k_begin` on see any of the keys before `k_end`. Later queries see no earlier keys.
__device__ __forceinline__ int TilesThatSee(const Heads& heads, const int* document_start_T, int64_t k_begin,
                                            int64_t k_end) {
  int low = 1, high = static_cast<int>((heads.tokens - k_begin + kMet - 1) / kMet);
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (heads.FirstSeen(document_start_T, k_begin + int64_t{middle} * kMet) < k_end) {
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

template <int kE>
__global__ void __launch_bounds__(kWarpgroupThreads, 1)
    WarpgroupKeyGradients(Operands x, Heads heads, bf16* d_k, bf16* d_v) {
  using Own = typename Backward<kE>::Own;
  using Met = typename Backward<kE>::Met;
  TEMPER_WINDOW(Bf16Bits, window, Backward<kE>::kKeyWindow);
  TEMPER_SHARED(RowSums, sums, 2 * kMet);
  TEMPER_SHARED(int, first_seen, 2 * kMet);
  const int base = FirstTile(window);
  const Own k_tile = {base}, v_tile = {base + Own::kElements};
  const auto met = [base](int i) { return Met{base + 2 * Own::kElements + i * Met::kElements}; };
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, group = thread / kWarpgroup;
  const int in_block = group * kWarpgroupRows + thread % kWarpgroup / 32 * 16 + lane / 4;
  const int64_t k_begin = int64_t{blockIdx.x} * kBlockRows, kv_head = blockIdx.y, E = heads.E, T = heads.tokens;
  const int64_t k_end = k_begin + kBlockRows < T ? k_begin + kBlockRows : T;
  const int64_t row = k_begin + in_block, sharing = heads.heads / heads.kv_heads;
  const int of_head = TilesThatSee(heads, x.document_start_T, k_begin, k_end);
  const int tiles = of_head * static_cast<int>(sharing);
  const float scale = heads.scale * kLog2E;
  // Of the tile that is copied next.
  int64_t h = kv_head * sharing, q_begin = k_begin;
  const auto copy_met = [&](int i) {
    CopyRows(x.q, q_begin, T, heads.heads, h, E, window, met(i % 2));
    CopyRows(x.d_o, q_begin, T, heads.heads, h, E, window, met(2 + i % 2));
    CloseCopies();
    if (thread < kMet) {
      const int64_t t = q_begin + thread;
      const int at = i % 2 * kMet + thread;
      sums[at] = t < T ? RowSums{x.lse_TH[t * heads.heads + h] * kLog2E, x.delta_TH[t * heads.heads + h]} : RowSums{};
      // What no query is sees no key.
      first_seen[at] = static_cast<int>(t < T ? heads.FirstSeen(x.document_start_T, t) : T);
    }
    q_begin += kMet;
    if (q_begin == k_begin + int64_t{of_head} * kMet) {
      ++h;
      q_begin = k_begin;
    }
  };
  FragmentC out_k[kE / 8] = {}, out_v[kE / 8] = {};
  CopyRows(x.k, k_begin, k_end, heads.kv_heads, kv_head, E, window, k_tile);
  CopyRows(x.v, k_begin, k_end, heads.kv_heads, kv_head, E, window, v_tile);
  copy_met(0);
  int t_next = static_cast<int>(k_begin);
  for (int i = 0; i < tiles; ++i) {
    const int t_begin = t_next;
    t_next = static_cast<int>(q_begin);
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
    const int s_begin = static_cast<int>(k_begin) + group * kWarpgroupRows;
    if (t_begin < s_begin + kWarpgroupRows - 1 || first_seen[slot + kMet - 1] > s_begin) {
      TEMPER_UNROLL
      for (int n = 0; n < kMet / 8; ++n) {
        TEMPER_UNROLL
        for (int j = 0; j < 4; ++j) {
          const int at = n * 8 + column + j % 2, s = static_cast<int>(row) + j / 2 * 8, from = first_seen[slot + at];
          if (s > t_begin + at || s < from) p[n].x[j] = -INFINITY;
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
  using M = MatrixTile<kE>;
  if (row < k_end) {
    StoreHalf<M, 0>(out_k, heads.scale, row, heads.kv_heads, kv_head, E, lane, d_k);
    StoreHalf<M, 0>(out_v, 1, row, heads.kv_heads, kv_head, E, lane, d_v);
  }
  if (row + 8 < k_end) {
    StoreHalf<M, 1>(out_k, heads.scale, row, heads.kv_heads, kv_head, E, lane, d_k);
    StoreHalf<M, 1>(out_v, 1, row, heads.kv_heads, kv_head, E, lane, d_v);
  }
}

template <int kE>
std::unique_ptr<Kernel> Make(const Heads& heads, gpuStream_t stream) {
  constexpr int kQueryBytes = Backward<kE>::kQueryWindow * 2, kKeyBytes = Backward<kE>::kKeyWindow * 2;
  if (!AllowWindow(WarpgroupQueryGradients<kE>, kQueryBytes) || !AllowWindow(WarpgroupKeyGradients<kE>, kKeyBytes)) {
    return nullptr;
  }
  return MakeKernel([=](const KernelArgs& args) {
    if (heads.tokens == 0) return OkStatus();
    float* const delta = reinterpret_cast<float*>(args.workspace);
    const Operands x = {In<const bf16>(args, 0), In<const bf16>(args, 1),  In<const bf16>(args, 2),
                        In<const bf16>(args, 3), In<const float>(args, 5), delta,
                        In<const int>(args, 6)};
    const auto blocks = static_cast<unsigned>((heads.tokens + kBlockRows - 1) / kBlockRows);
    constexpr unsigned kThreads = kWarpgroupThreads;
    TEMPER_RETURN_IF_ERROR(FindDeltas(x.d_o, In<const bf16>(args, 4), heads, delta, stream));
    TEMPER_RETURN_IF_ERROR(TEMPER_LAUNCH_WINDOW((WarpgroupQueryGradients<kE>),
                                                (gpuDim3{blocks, static_cast<unsigned>(heads.heads)}), kThreads,
                                                kQueryBytes, stream, x, heads, Out<bf16>(args, 0)));
    return TEMPER_LAUNCH_WINDOW((WarpgroupKeyGradients<kE>), (gpuDim3{blocks, static_cast<unsigned>(heads.kv_heads)}),
                                kThreads, kKeyBytes, stream, x, heads, Out<bf16>(args, 1), Out<bf16>(args, 2));
  });
}

}  // namespace

std::unique_ptr<Kernel> MakeWarpgroupAttentionBackward(const Heads& heads, const Context& context) {
  if (!FitsWarpgroups(heads, context)) return nullptr;
  return heads.E <= 64 ? Make<64>(heads, context.stream) : Make<128>(heads, context.stream);
}

#else

std::unique_ptr<Kernel> MakeWarpgroupAttentionBackward(const Heads&, const Context&) {
  return nullptr;
}

#endif

}  // namespace temper::gpu
