// Loops of short_conv, over some channels of all tokens: kConvChannels at a time, whose taps stay in L1. One pass over
// memory each way.
#pragma once

#include <algorithm>

#include "backend/cpu/vector/vector_kernels.h"

namespace temper {
namespace {

// Taps of channels [begin, begin + n) by tap: w_LC[j] meets the token j before.
template <class T>
TEMPER_VEC void TapsOf(const T* w_CL, int64_t L, int64_t begin, int64_t n, float (*w_LC)[kConvChannels]) {
  for (int64_t c = 0; c < n; ++c) {
    for (int64_t j = 0; j < L; ++j) w_LC[j][c] = ToFloat(w_CL[(begin + c) * L + L - 1 - j]);
  }
}

// The biases of channels [begin, begin + n); bias_C: nullptr for none.
template <class T>
TEMPER_VEC void BiasOf(const T* bias_C, int64_t begin, int64_t n, float* bias) {
  for (int64_t c = 0; c < n; ++c) bias[c] = bias_C == nullptr ? 0 : ToFloat(bias_C[begin + c]);
}

template <class T>
void ShortConv(const T* x_TC, const T* w_CL, const T* bias_C, const int32_t* start_T, const ShortConvDims& dims,
               int64_t begin, int64_t end, T* y_TC) {
  const int64_t tokens = dims.tokens, C = dims.channels, L = dims.taps;
  const bool silu = dims.silu;
  float w_LC[kMaxConvTaps][kConvChannels], bias[kConvChannels];
  for (; begin < end; begin += kConvChannels) {
    const int64_t n = std::min(kConvChannels, end - begin);
    TapsOf(w_CL, L, begin, n, w_LC);
    BiasOf(bias_C, begin, n, bias);
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t taps = std::min<int64_t>(L, t - start_T[t] + 1);
      const T* const x = x_TC + t * C + begin;
      T* const y = y_TC + t * C + begin;
      Sweep(n, [&](int64_t i, auto lanes) {
        Floats u = Fma(Load(x + i, lanes), Load(w_LC[0] + i, lanes), Load(bias + i, lanes));
        for (int64_t j = 1; j < taps; ++j) u = Fma(Load(x - j * C + i, lanes), Load(w_LC[j] + i, lanes), u);
        if (silu) u = u * LogisticOf(u).s;
        Store(y + i, u, lanes);
      });
    }
  }
}

// From the last token to the first: d_x[t] needs the gradients before the activation of tokens t .. t + L - 1, which
// stay in a ring. d_w (nullptr: none) over `acc` (nullptr: zeros), and d_bias likewise, are summed over blocks of
// kSumRowsBlock tokens, then over blocks: the order does not depend on threads.
template <class T>
void ShortConvBackward(const T* d_y_TC, const T* x_TC, const T* w_CL, const T* bias_C, const int32_t* start_T,
                       const ShortConvDims& dims, int64_t begin, int64_t end, T* d_x_TC, const ShortConvGradients& of) {
  float *const d_w_CL = of.d_w_CL, *const d_bias_C = of.d_bias_C;
  const int64_t tokens = dims.tokens, C = dims.channels, L = dims.taps;
  const bool silu = dims.silu;
  float w_LC[kMaxConvTaps][kConvChannels], d_u_LC[kMaxConvTaps][kConvChannels];
  // Rows of taps, then that of the bias.
  float block_LC[kMaxConvTaps + 1][kConvChannels], sum_LC[kMaxConvTaps + 1][kConvChannels], bias[kConvChannels];
  for (; begin < end; begin += kConvChannels) {
    const int64_t n = std::min(kConvChannels, end - begin);
    TapsOf(w_CL, L, begin, n, w_LC);
    BiasOf(bias_C, begin, n, bias);
    for (int64_t j = 0; j <= L; ++j) {
      std::fill_n(block_LC[j], n, 0.0f);
      std::fill_n(sum_LC[j], n, 0.0f);
    }
    for (int64_t t = tokens; t-- > 0;) {
      const int64_t taps = std::min<int64_t>(L, t - start_T[t] + 1);
      int64_t readers = 1;  // tokens that read this one
      while (readers < L && t + readers < tokens && start_T[t + readers] <= t) ++readers;
      const T *const x = x_TC + t * C + begin, *const d_y = d_y_TC + t * C + begin;
      T* const d_x = d_x_TC + t * C + begin;
      float* const own = d_u_LC[t % L];
      Sweep(n, [&](int64_t i, auto lanes) {
        Floats d_u = Load(d_y + i, lanes);
        if (silu) {
          Floats u = Fma(Load(x + i, lanes), Load(w_LC[0] + i, lanes), Load(bias + i, lanes));
          for (int64_t j = 1; j < taps; ++j) u = Fma(Load(x - j * C + i, lanes), Load(w_LC[j] + i, lanes), u);
          const Logistic l = LogisticOf(u);
          d_u = d_u * (l.s * Fma(u, l.complement, Set(1.0f)));
        }
        Store(own + i, d_u, lanes);
        Floats sum = d_u * Load(w_LC[0] + i, lanes);
        for (int64_t j = 1; j < readers; ++j) {
          sum = Fma(Load(d_u_LC[(t + j) % L] + i, lanes), Load(w_LC[j] + i, lanes), sum);
        }
        Store(d_x + i, sum, lanes);
        for (int64_t j = 0; d_w_CL != nullptr && j < taps; ++j) {
          float* const at = block_LC[j] + i;
          Store(at, Fma(d_u, Load(x - j * C + i, lanes), Load(at, lanes)), lanes);
        }
        if (d_bias_C != nullptr) Store(block_LC[L] + i, Load(block_LC[L] + i, lanes) + d_u, lanes);
      });
      if (d_w_CL == nullptr || t % kSumRowsBlock != 0) continue;
      for (int64_t j = 0; j < L + (d_bias_C != nullptr); ++j) {
        Sweep(n, [&](int64_t i, auto lanes) {
          Store(sum_LC[j] + i, Load(sum_LC[j] + i, lanes) + Load(block_LC[j] + i, lanes), lanes);
          Store(block_LC[j] + i, Zero(), lanes);
        });
      }
    }
    for (int64_t c = 0; d_w_CL != nullptr && c < n; ++c) {
      for (int64_t j = 0; j < L; ++j) {
        const int64_t at = (begin + c) * L + L - 1 - j;
        d_w_CL[at] = sum_LC[j][c] + (of.acc_w_CL == nullptr ? 0 : of.acc_w_CL[at]);
      }
    }
    for (int64_t c = 0; d_bias_C != nullptr && c < n; ++c) {
      d_bias_C[begin + c] = sum_LC[L][c] + (of.acc_bias_C == nullptr ? 0 : of.acc_bias_C[begin + c]);
    }
  }
}

// state_NLC: of each slot its last taps - 1 tokens, the last one last. Tokens are taken one after another: any split of
// a sequence into steps gives the same bits.
template <class T>
void ShortConvCached(const T* x_SC, const T* w_CL, const T* bias_C, const int32_t* slot_S, const int32_t* position_S,
                     const ShortConvDims& dims, int64_t begin, int64_t end, T* state_NLC, T* y_SC) {
  const int64_t tokens = dims.tokens, C = dims.channels, L = dims.taps;
  const bool silu = dims.silu;
  float w_LC[kMaxConvTaps][kConvChannels], bias[kConvChannels];
  for (; begin < end; begin += kConvChannels) {
    const int64_t n = std::min(kConvChannels, end - begin);
    TapsOf(w_CL, L, begin, n, w_LC);
    BiasOf(bias_C, begin, n, bias);
    for (int64_t s = 0; s < tokens; ++s) {
      const T* const x = x_SC + s * C + begin;
      T* const y = y_SC + s * C + begin;
      if (slot_S[s] < 0) {
        Sweep(n, [=](int64_t i, auto lanes) { Store(y + i, Zero(), lanes); });
        continue;
      }
      const int64_t taps = std::min<int64_t>(L, position_S[s] + 1);
      T* const before = state_NLC + (slot_S[s] * (L - 1) + L - 1) * C + begin;  // j before: row -j
      Sweep(n, [&](int64_t i, auto lanes) {
        Floats u = Fma(Load(x + i, lanes), Load(w_LC[0] + i, lanes), Load(bias + i, lanes));
        for (int64_t j = 1; j < taps; ++j) u = Fma(Load(before - j * C + i, lanes), Load(w_LC[j] + i, lanes), u);
        if (silu) u = u * LogisticOf(u).s;
        Store(y + i, u, lanes);
      });
      for (int64_t j = L - 1; j > 1; --j) std::copy_n(before - (j - 1) * C, n, before - j * C);
      if (L > 1) std::copy_n(x, n, before - C);
    }
  }
}

}  // namespace
}  // namespace temper
