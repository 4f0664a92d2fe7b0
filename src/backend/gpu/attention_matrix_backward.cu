// attention_backward on matrix units: attention_backward.cu's three kernels. d_q has a block per 64 queries and head;
// d_k and d_v one per 64 keys and head of theirs, which goes through the heads that share them and their queries in
// order.
#include "backend/gpu/attention_matrix.h"

namespace temper::gpu {

#if TEMPER_MATRIX_UNITS
namespace {

struct Operands {
  const bf16 *d_o, *q, *k, *v;
  const float *lse_TH, *delta_TH;
  const int* document_start_T;
};

template <class M>
__global__ void __launch_bounds__(kMatrixThreads) MatrixQueryGradients(Operands x, Heads heads, bf16* d_q) {
  TEMPER_SHARED(Bf16Bits, k_tile, M::kElements);
  TEMPER_SHARED(Bf16Bits, v_tile, M::kElements);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t q_begin = int64_t{gridDim.x - 1 - blockIdx.x} * kTileRows, h = blockIdx.y, E = heads.E;
  const int64_t q_end = q_begin + kTileRows < heads.tokens ? q_begin + kTileRows : heads.tokens;
  const int64_t kv_head = heads.KvHead(h), row = q_begin + warp * 16 + lane / 4;
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
  FragmentA q_rows[M::kSteps], d_o_rows[M::kSteps];
  LoadRows<M>(x.q, row, q_end, heads.heads, h, E, lane, q_rows);
  LoadRows<M>(x.d_o, row, q_end, heads.heads, h, E, lane, d_o_rows);
  const float scale = heads.scale * kLog2E;

  FragmentC out[M::kColumnTiles] = {};
  for (int64_t s_begin = heads.FirstSeen(x.document_start_T, q_begin); s_begin < q_end; s_begin += kTileRows) {
    CopyTile<M>(x.k, s_begin, q_end, heads.kv_heads, kv_head, E, k_tile);
    CopyTile<M>(x.v, s_begin, q_end, heads.kv_heads, kv_head, E, v_tile);
    CloseCopies();
    AwaitCopies<0>();
    __syncthreads();
    TEMPER_UNROLL
    for (int from = 0; from < kTileRows; from += 16) {
      FragmentC score[2] = {}, d_p[2] = {};
      AddScores<M>(q_rows, k_tile, from, lane, score);
      AddScores<M>(d_o_rows, v_tile, from, lane, d_p);
      TEMPER_UNROLL
      for (int n = 0; n < 2; ++n) {
        TEMPER_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int s = static_cast<int>(s_begin) + from + n * 8 + lane % 4 * 2 + i % 2;
          const bool seen = s >= first[i / 2] && s <= query[i / 2];
          const float p = seen ? Exp2(Fma(scale, score[n].x[i], -lse[i / 2])) : 0;
          score[n].x[i] = p * (d_p[n].x[i] - delta[i / 2]);  // d_s
        }
      }
      AddProduct<M>(AsOperand(score), k_tile, from, lane, out);
    }
    __syncthreads();
  }
  if (query[0] < q_end) StoreHalf<M, 0>(out, heads.scale, row, heads.heads, h, E, lane, d_q);
  if (query[1] < q_end) StoreHalf<M, 1>(out, heads.scale, row, heads.heads, h, E, lane, d_q);
}

template <class M>
__global__ void __launch_bounds__(kMatrixThreads) MatrixKeyGradients(Operands x, Heads heads, bf16* d_k, bf16* d_v) {
  TEMPER_SHARED(Bf16Bits, q_tile, M::kElements);
  TEMPER_SHARED(Bf16Bits, d_o_tile, M::kElements);
  TEMPER_SHARED(float, lse, kTileRows);
  TEMPER_SHARED(float, delta, kTileRows);
  TEMPER_SHARED(int, first_seen, kTileRows);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int64_t k_begin = int64_t{blockIdx.x} * kTileRows, kv_head = blockIdx.y, E = heads.E, T = heads.tokens;
  const int64_t k_end = k_begin + kTileRows < T ? k_begin + kTileRows : T;
  const int64_t row = k_begin + warp * 16 + lane / 4, group = heads.heads / heads.kv_heads;
  FragmentA k_rows[M::kSteps], v_rows[M::kSteps];
  LoadRows<M>(x.k, row, k_end, heads.kv_heads, kv_head, E, lane, k_rows);
  LoadRows<M>(x.v, row, k_end, heads.kv_heads, kv_head, E, lane, v_rows);
  const float scale = heads.scale * kLog2E;

  FragmentC out_k[M::kColumnTiles] = {}, out_v[M::kColumnTiles] = {};
  for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    // Later queries see no earlier keys: the first tile whose first query sees none of these is beyond the last.
    for (int64_t q_begin = k_begin; q_begin < T && heads.FirstSeen(x.document_start_T, q_begin) < k_end;
         q_begin += kTileRows) {
      CopyTile<M>(x.q, q_begin, T, heads.heads, h, E, q_tile);
      CopyTile<M>(x.d_o, q_begin, T, heads.heads, h, E, d_o_tile);
      CloseCopies();
      if (thread < kTileRows) {
        const int64_t t = q_begin + thread;
        lse[thread] = t < T ? x.lse_TH[t * heads.heads + h] * kLog2E : 0.0f;
        delta[thread] = t < T ? x.delta_TH[t * heads.heads + h] : 0.0f;
        // What no query is sees no key.
        first_seen[thread] = static_cast<int>(t < T ? heads.FirstSeen(x.document_start_T, t) : T);
      }
      AwaitCopies<0>();
      __syncthreads();
      TEMPER_NO_UNROLL  // the accumulators leave no registers for two at once
          for (int from = 0; from < kTileRows; from += 16) {
        FragmentC p[2] = {}, d_s[2] = {};
        AddScores<M>(k_rows, q_tile, from, lane, p);
        AddScores<M>(v_rows, d_o_tile, from, lane, d_s);
        TEMPER_UNROLL
        for (int n = 0; n < 2; ++n) {
          TEMPER_UNROLL
          for (int i = 0; i < 4; ++i) {
            const int column = from + n * 8 + lane % 4 * 2 + i % 2;
            const int t = static_cast<int>(q_begin) + column, s = static_cast<int>(row) + i / 2 * 8;
            const bool seen = s <= t && s >= first_seen[column];
            p[n].x[i] = seen ? Exp2(Fma(scale, p[n].x[i], -lse[column])) : 0;
            d_s[n].x[i] = p[n].x[i] * (d_s[n].x[i] - delta[column]);
          }
        }
        AddProduct<M>(AsOperand(p), d_o_tile, from, lane, out_v);
        AddProduct<M>(AsOperand(d_s), q_tile, from, lane, out_k);
      }
      __syncthreads();
    }
  }
  if (row < k_end) {
    StoreHalf<M, 0>(out_k, heads.scale, row, heads.kv_heads, kv_head, E, lane, d_k);
    StoreHalf<M, 0>(out_v, 1, row, heads.kv_heads, kv_head, E, lane, d_v);
  }
  if (row + 8 < k_end) {
    StoreHalf<M, 1>(out_k, heads.scale, row, heads.kv_heads, kv_head, E, lane, d_k);
    StoreHalf<M, 1>(out_v, 1, row, heads.kv_heads, kv_head, E, lane, d_v);
  }
}

template <class M>
std::unique_ptr<Kernel> Make(const Heads& heads, gpuStream_t stream) {
  return MakeKernel([=](const KernelArgs& args) {
    if (heads.tokens == 0) return OkStatus();
    float* const delta = reinterpret_cast<float*>(args.workspace);
    const Operands x = {In<const bf16>(args, 0), In<const bf16>(args, 1),  In<const bf16>(args, 2),
                        In<const bf16>(args, 3), In<const float>(args, 5), delta,
                        In<const int>(args, 6)};
    const auto tiles = static_cast<unsigned>((heads.tokens + kTileRows - 1) / kTileRows);
    constexpr unsigned kThreads = kMatrixThreads;
    TEMPER_RETURN_IF_ERROR(FindDeltas(x.d_o, In<const bf16>(args, 4), heads, delta, stream));
    TEMPER_RETURN_IF_ERROR(TEMPER_LAUNCH((MatrixQueryGradients<M>),
                                         (gpuDim3{tiles, static_cast<unsigned>(heads.heads)}), kThreads, stream, x,
                                         heads, Out<bf16>(args, 0)));
    return TEMPER_LAUNCH((MatrixKeyGradients<M>), (gpuDim3{tiles, static_cast<unsigned>(heads.kv_heads)}), kThreads,
                         stream, x, heads, Out<bf16>(args, 1), Out<bf16>(args, 2));
  });
}

}  // namespace

std::unique_ptr<Kernel> MakeMatrixAttentionBackward(const Heads& heads, const Context& context) {
  if (!HasMatrixUnits(context.stream) || !FitsMatrixTiles(heads)) return nullptr;
  return heads.E <= 64 ? Make<MatrixTile<64>>(heads, context.stream) : Make<MatrixTile<128>>(heads, context.stream);
}

#else

std::unique_ptr<Kernel> MakeMatrixAttentionBackward(const Heads&, const Context&) {
  return nullptr;
}

#endif

}  // namespace temper::gpu
