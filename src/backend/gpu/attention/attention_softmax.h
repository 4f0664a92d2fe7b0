// The softmax of a warp's queries whose keys come by tile after tile, with its scores and outputs as sums of U's, a
// matrix unit (warp_matrix.h): the running maximum, sum and output of each query (Dao 2023, FlashAttention-2).
#pragma once

#include "backend/gpu/attention/attention_operands.h"
#include "backend/gpu/units/warp_matrix.h"

namespace temper::gpu {

inline constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

template <class U>
struct RunningSoftmax {
  float largest[U::kHeldRows];  // of scores so far, in units of log 2
  float sum[U::kHeldRows];      // of exp2(score - largest), of this lane's columns
  float rescale[U::kHeldRows];  // what was summed up before is to be multiplied by

  // The result of the steps before, if any, is one more key, which scores their lse and has their o as value. The
  // warp's queries are those of [begin, end) among its rows; `out` starts as zeros.
  template <class R, int kTiles>
  __device__ __forceinline__ RunningSoftmax(const ForwardOperands<bf16, R>& x, const Heads& heads, int begin, int end,
                                            int h, int lane, typename U::C (&out)[kTiles]) {
    TEMPER_UNROLL
    for (int i = 0; i < U::kHeldRows; ++i) {
      largest[i] = -INFINITY;
      sum[i] = 0;
    }
    if (x.lse_before == nullptr) return;
    TEMPER_UNROLL
    for (int i = 0; i < U::kHeldRows; ++i) {
      const int t = begin + U::Row(lane, i);
      if (t >= end) continue;
      const int64_t row = t * heads.heads + h;
      largest[i] = x.lse_before[row] * kLog2E;
      sum[i] = U::Column(lane, 0) == 0 ? 1 : 0;
      U::template LoadRow<kTiles * U::kColumns>(x.o_before + row * heads.E, i, heads.E, lane, out);
    }
  }

  // Scores become p = exp2(scale score - largest so far). REQUIRES: scale > 0, or the largest would be another.
  template <int kTiles>
  __device__ __forceinline__ void Weigh(typename U::C (&score)[kTiles], float scale) {
    float here[U::kHeldRows], base[U::kHeldRows], sum_here[U::kHeldRows];
    TEMPER_UNROLL
    for (int i = 0; i < U::kHeldRows; ++i) here[i] = -INFINITY;
    TEMPER_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      TEMPER_UNROLL
      for (int i = 0; i < U::kSums; ++i) {
        here[U::HeldRow(i)] = Larger()(here[U::HeldRow(i)], score[n].x[i]);  // a NaN comes back through p
      }
    }
    TEMPER_UNROLL
    for (int i = 0; i < U::kHeldRows; ++i) {
      const float before = largest[i];
      largest[i] = Larger()(before, U::template ReduceRow<Larger>(here[i]) * scale);
      // No key of this query yet: nothing to subtract from -inf.
      base[i] = largest[i] > -INFINITY ? largest[i] : 0;
      rescale[i] = Exp2Flush(before - base[i]);
      sum_here[i] = 0;
    }
    TEMPER_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      TEMPER_UNROLL
      for (int i = 0; i < U::kSums; ++i) {
        float& p = score[n].x[i];
        p = Exp2Flush(Fma(p, scale, -base[U::HeldRow(i)]));
        sum_here[U::HeldRow(i)] += p;
      }
    }
    TEMPER_UNROLL
    for (int i = 0; i < U::kHeldRows; ++i) sum[i] = Fma(sum[i], rescale[i], sum_here[i]);
  }

  template <int kTiles>
  __device__ __forceinline__ void Rescale(typename U::C (&out)[kTiles]) const {
    TEMPER_UNROLL
    for (int n = 0; n < kTiles; ++n) {
      TEMPER_UNROLL
      for (int i = 0; i < U::kSums; ++i) out[n].x[i] *= rescale[U::HeldRow(i)];
    }
  }

  // o and lse, as of the constructor's queries.
  template <class R, int kTiles>
  __device__ __forceinline__ void Store(const typename U::C (&out)[kTiles], const ForwardOperands<bf16, R>& x,
                                        const Heads& heads, int begin, int end, int h, int lane) const {
    TEMPER_UNROLL
    for (int i = 0; i < U::kHeldRows; ++i) {
      const float whole = U::template ReduceRow<Sum>(sum[i]);
      const int t = begin + U::Row(lane, i);
      if (t >= end) continue;
      const int64_t row = t * heads.heads + h;
      U::template StoreRow<kTiles * U::kColumns>(out, i, 1 / whole, nullptr, heads.E, lane, x.o + row * heads.E);
      if (U::Column(lane, 0) == 0) x.lse_TH[row] = largest[i] * kLn2 + Log(whole);
    }
  }
};

}  // namespace temper::gpu
