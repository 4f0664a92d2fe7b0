// attention on Hopper's warpgroups: attention.cu's algorithm, a block per 128 queries and head, tiles of 128 keys. The
// scores of a tile are enqueued before the values of the tile before it are weighted, so that the units go on while
// exponentials are taken (Shah et al. 2024, FlashAttention-3).
#include "backend/gpu/attention_warpgroup.h"

namespace temper::gpu {

#if TEMPER_WARPGROUP_UNITS
namespace {

template <int kE>
struct Forward {
  using Tile = SwizzledTile<kBlockRows, kE>;
  static constexpr int kTiles = 5;  // queries; keys and values twice
  static constexpr int kWindow = kTiles * Tile::kElements + kWindowSlack;
};

// p = exp2(scale (score - largest so far)), of this lane's two rows; `rescale` takes what was summed up before to the
// new largest.
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
    largest[i] = fmaxf(before, ReduceQuad<Max>(here[i]));
    // No key of this query yet: nothing to scale, and nothing that exp2 could take.
    const float from = largest[i] > -INFINITY ? largest[i] * scale : 0;
    rescale[i] = Exp2Flush(Fma(before, scale, -from));
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

template <int kE>
__global__ void __launch_bounds__(kWarpgroupThreads, 1)
    WarpgroupAttention(const bf16* q, const bf16* k, const bf16* v, const int* document_start_T, Heads heads, bf16* o,
                       float* lse_TH, int64_t* fault) {
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
    const int start = document_start_T[t];
    if (start < 0 || start > t || (t > 0 && start < document_start_T[t - 1])) *fault = 1 + t;
  }
  // This lane's two queries.
  const int64_t row = q_begin + in_block;
  int query[2], first[2];
  for (int i = 0; i < 2; ++i) {
    query[i] = static_cast<int>(row) + i * 8;
    first[i] = static_cast<int>(query[i] < q_end ? heads.FirstSeen(document_start_T, query[i]) : q_end);
  }
  // Documents begin in order, so that the first query sees the first key of all, and the last the last first one.
  const int64_t k_begin = heads.FirstSeen(document_start_T, q_begin);
  const int64_t all_see_from = heads.FirstSeen(document_start_T, q_end - 1);
  const int tiles = static_cast<int>((q_end - k_begin + kBlockRows - 1) / kBlockRows);
  const auto copy_keys = [&](int j) {
    CopyRows(k, k_begin + int64_t{j} * kBlockRows, q_end, heads.kv_heads, kv_head, E, window, place(1 + j % 2));
  };
  const auto copy_values = [&](int j) {
    CopyRows(v, k_begin + int64_t{j} * kBlockRows, q_end, heads.kv_heads, kv_head, E, window, place(3 + j % 2));
  };
  const float scale = heads.scale * kLog2E;
  FragmentC score[kBlockRows / 8], out[kE / 8] = {};
  FragmentA p[kBlockRows / 16];
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, rescale[2];
  const auto softmax = [&](int j) {
    const int64_t s_begin = k_begin + int64_t{j} * kBlockRows;
    // Of the queries of this warpgroup all see all of the tile.
    if (s_begin < all_see_from || s_begin + kBlockRows - 1 > q_begin + group * kWarpgroupRows) {
      TEMPER_UNROLL
      for (int n = 0; n < kBlockRows / 8; ++n) {
        TEMPER_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int s = static_cast<int>(s_begin) + n * 8 + lane % 4 * 2 + i % 2;
          if (s < first[i / 2] || s > query[i / 2]) score[n].x[i] = -INFINITY;
        }
      }
    }
    Softmax(score, scale, largest, sum, rescale);
  };

  CopyRows(q, q_begin, q_end, heads.heads, h, E, window, place(0));
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
    TEMPER_UNROLL
    for (int n = 0; n < kE / 8; ++n) {
      TEMPER_UNROLL
      for (int i = 0; i < 4; ++i) out[n].x[i] *= rescale[i / 2];
    }
    PackWeights(score, p);
  }
  MeetAtTile();
  FenceRegisters(p, out);
  StartWeighted(window, p, place(3 + (tiles - 1) % 2), out);
  AwaitProducts<0>(out);
  TEMPER_UNROLL
  for (int i = 0; i < 2; ++i) sum[i] = ReduceQuad<Sum>(sum[i]);
  using M = MatrixTile<kE>;
  if (query[0] < q_end) {
    StoreHalf<M, 0>(out, 1 / sum[0], row, heads.heads, h, E, lane, o);
    if (lane % 4 == 0) lse_TH[row * heads.heads + h] = largest[0] * heads.scale + Log(sum[0]);
  }
  if (query[1] < q_end) {
    StoreHalf<M, 1>(out, 1 / sum[1], row, heads.heads, h, E, lane, o);
    if (lane % 4 == 0) lse_TH[(row + 8) * heads.heads + h] = largest[1] * heads.scale + Log(sum[1]);
  }
}

template <int kE>
std::unique_ptr<Kernel> Make(const Heads& heads, gpuStream_t stream, Faults::Word* fault) {
  constexpr int kBytes = Forward<kE>::kWindow * 2;
  if (!AllowWindow(WarpgroupAttention<kE>, kBytes)) return nullptr;
  return MakeKernel([heads, stream, fault = std::move(*fault)](const KernelArgs& args) {
    if (heads.tokens == 0) return OkStatus();
    const gpuDim3 blocks = {static_cast<unsigned>((heads.tokens + kBlockRows - 1) / kBlockRows),
                            static_cast<unsigned>(heads.heads)};
    return TEMPER_LAUNCH_WINDOW((WarpgroupAttention<kE>), blocks, unsigned{kWarpgroupThreads}, kBytes, stream,
                                In<const bf16>(args, 0), In<const bf16>(args, 1), In<const bf16>(args, 2),
                                In<const int>(args, 3), heads, Out<bf16>(args, 0), Out<float>(args, 1), fault.get());
  });
}

}  // namespace

std::unique_ptr<Kernel> MakeWarpgroupAttention(const Heads& heads, const Context& context, Faults::Word* fault) {
  if (!FitsWarpgroups(heads, context)) return nullptr;
  return heads.E <= 64 ? Make<64>(heads, context.stream, fault) : Make<128>(heads, context.stream, fault);
}

#else

std::unique_ptr<Kernel> MakeWarpgroupAttention(const Heads&, const Context&, Faults::Word*) {
  return nullptr;
}

#endif

}  // namespace temper::gpu
