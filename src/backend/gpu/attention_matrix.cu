// attention on matrix units: attention.cu's algorithm, a block per 64 queries and head. While scores are made the
// values come in, while values are weighted the next keys do.
#include "backend/gpu/attention_matrix.h"

namespace temper::gpu {

#if TEMPER_MATRIX_UNITS
namespace {

template <class M>
__global__ void __launch_bounds__(kMatrixThreads)
    MatrixAttention(const bf16* q, const bf16* k, const bf16* v, const int* document_start_T, Heads heads, bf16* o,
                    float* lse_TH, int64_t* fault) {
  TEMPER_SHARED(Bf16Bits, k_tile, M::kElements);
  TEMPER_SHARED(Bf16Bits, v_tile, M::kElements);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  // The last queries see the most keys: their blocks begin first.
  const int64_t q_begin = int64_t{gridDim.x - 1 - blockIdx.x} * kTileRows, h = blockIdx.y, E = heads.E;
  const int64_t q_end = q_begin + kTileRows < heads.tokens ? q_begin + kTileRows : heads.tokens;
  const int64_t kv_head = heads.KvHead(h);
  if (h == 0 && q_begin + threadIdx.x < q_end) {
    const int64_t t = q_begin + threadIdx.x;
    const int start = document_start_T[t];
    if (start < 0 || start > t || (t > 0 && start < document_start_T[t - 1])) *fault = 1 + t;
  }
  // This lane's two queries.
  const int64_t row = q_begin + warp * 16 + lane / 4;
  int query[2], first[2];
  for (int i = 0; i < 2; ++i) {
    query[i] = static_cast<int>(row) + i * 8;
    first[i] = static_cast<int>(query[i] < q_end ? heads.FirstSeen(document_start_T, query[i]) : q_end);
  }
  FragmentA q_rows[M::kSteps];
  LoadRows<M>(q, row, q_end, heads.heads, h, E, lane, q_rows);
  // Documents begin in order, so that the first query sees the first key of all, and the last the last first one.
  const int64_t k_begin = heads.FirstSeen(document_start_T, q_begin);
  const int64_t all_see_from = heads.FirstSeen(document_start_T, q_end - 1);
  const float scale = heads.scale * kLog2E;

  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};  // of scores in units of log 2
  FragmentC out[M::kColumnTiles] = {};
  CopyTile<M>(k, k_begin, q_end, heads.kv_heads, kv_head, E, k_tile);
  CloseCopies();
  for (int64_t s_begin = k_begin; s_begin < q_end; s_begin += kTileRows) {
    CopyTile<M>(v, s_begin, q_end, heads.kv_heads, kv_head, E, v_tile);
    CloseCopies();
    AwaitCopies<1>();
    __syncthreads();  // keys are there
    FragmentC score[kTileRows / 8] = {};
    TEMPER_UNROLL
    for (int from = 0; from < kTileRows; from += 16) AddScores<M>(q_rows, k_tile, from, lane, score + from / 8);
    __syncthreads();  // and may be overwritten
    if (s_begin + kTileRows < q_end) {
      CopyTile<M>(k, s_begin + kTileRows, q_end, heads.kv_heads, kv_head, E, k_tile);
    }
    CloseCopies();

    const bool whole = s_begin >= all_see_from && s_begin + kTileRows - 1 <= q_begin && q_begin + kTileRows <= q_end;
    float here[2] = {-INFINITY, -INFINITY};
    TEMPER_UNROLL
    for (int n = 0; n < kTileRows / 8; ++n) {
      TEMPER_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int s = static_cast<int>(s_begin) + n * 8 + lane % 4 * 2 + i % 2;
        const bool seen = whole || (s >= first[i / 2] && s <= query[i / 2]);
        score[n].x[i] = seen ? scale * score[n].x[i] : -INFINITY;
        here[i / 2] = Max()(here[i / 2], score[n].x[i]);
      }
    }
    TEMPER_UNROLL
    for (int i = 0; i < 2; ++i) {
      const float before = largest[i];
      largest[i] = Max()(before, ReduceQuad<Max>(here[i]));
      // No key of this query yet: nothing to scale, and nothing that exp could take.
      const bool any = largest[i] > -INFINITY;
      const float rescale = any ? Exp2(before - largest[i]) : 1;
      float sum_here = 0;
      TEMPER_UNROLL
      for (int n = 0; n < kTileRows / 8; ++n) {
        TEMPER_UNROLL
        for (int j = 0; j < 2; ++j) {
          float& p = score[n].x[i * 2 + j];
          p = any ? Exp2(p - largest[i]) : 0;
          sum_here += p;
        }
      }
      sum[i] = Fma(sum[i], rescale, ReduceQuad<Sum>(sum_here));
      TEMPER_UNROLL
      for (int n = 0; n < M::kColumnTiles; ++n) {
        out[n].x[i * 2] *= rescale;
        out[n].x[i * 2 + 1] *= rescale;
      }
    }
    AwaitCopies<1>();
    __syncthreads();  // values are there
    TEMPER_UNROLL
    for (int from = 0; from < kTileRows; from += 16) {
      AddProduct<M>(AsOperand(score + from / 8), v_tile, from, lane, out);
    }
    __syncthreads();  // the next values overwrite them
  }
  AwaitCopies<0>();
  if (query[0] < q_end) {
    StoreHalf<M, 0>(out, 1 / sum[0], row, heads.heads, h, E, lane, o);
    if (lane % 4 == 0) lse_TH[row * heads.heads + h] = largest[0] * kLn2 + Log(sum[0]);
  }
  if (query[1] < q_end) {
    StoreHalf<M, 1>(out, 1 / sum[1], row, heads.heads, h, E, lane, o);
    if (lane % 4 == 0) lse_TH[(row + 8) * heads.heads + h] = largest[1] * kLn2 + Log(sum[1]);
  }
}

template <class M>
std::unique_ptr<Kernel> Make(const Heads& heads, gpuStream_t stream, Faults::Word fault) {
  return MakeKernel([heads, stream, fault = std::move(fault)](const KernelArgs& args) {
    if (heads.tokens == 0) return OkStatus();
    const gpuDim3 blocks = {static_cast<unsigned>((heads.tokens + kTileRows - 1) / kTileRows),
                            static_cast<unsigned>(heads.heads)};
    return TEMPER_LAUNCH((MatrixAttention<M>), blocks, unsigned{kMatrixThreads}, stream, In<const bf16>(args, 0),
                         In<const bf16>(args, 1), In<const bf16>(args, 2), In<const int>(args, 3), heads,
                         Out<bf16>(args, 0), Out<float>(args, 1), fault.get());
  });
}

}  // namespace

std::unique_ptr<Kernel> MakeMatrixAttention(const Heads& heads, const Context& context, Faults::Word* fault) {
  if (!HasMatrixUnits(context.stream) || !FitsMatrixTiles(heads)) return nullptr;
  return heads.E <= 64 ? Make<MatrixTile<64>>(heads, context.stream, std::move(*fault))
                       : Make<MatrixTile<128>>(heads, context.stream, std::move(*fault));
}

#else

std::unique_ptr<Kernel> MakeMatrixAttention(const Heads&, const Context&, Faults::Word*) {
  return nullptr;
}

#endif

}  // namespace temper::gpu
