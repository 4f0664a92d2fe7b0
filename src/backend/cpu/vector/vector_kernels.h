// The loops of the memory-bound ops, once per instruction set: plain functions over contiguous ranges, without threads,
// allocation or errors. Each instruction set fills this table from the same bodies (*-inl.h); the kernels of
// backend/cpu/<op>.cc divide the work among threads and call through it.
//
// Pointers need no alignment. An output may equal an input's address only where the op's rule allows it (graph/ops/).
#pragma once

#include <cstdint>

#include "backend/cpu/isa.h"
#include "backend/cpu/pointwise/adamw_step.h"
#include "backend/cpu/pointwise/average_step.h"
#include "backend/cpu/pointwise/lion_step.h"
#include "backend/cpu/pointwise/sgd_step.h"
#include "graph/ops/short_conv.h"
#include "tensor/dtype.h"

namespace temper {

// A multiple of every vector length and of a group of draws: ranges that start at a multiple of it are
// processed without a split vector, and give the bits of one long range.
inline constexpr int64_t kRangeAlignment = 64;

// Columns that one call of sum_rows takes: four vectors of AVX-512, eight of AVX2, kept in registers.
inline constexpr int64_t kSumRowsColumns = 64;
// Rows whose contributions to a parameter's gradient are summed before those of other rows are added. Fixed, so the sum
// does not depend on the thread count; the workspace rules of the norms' backward (graph/ops) count by it too.
inline constexpr int64_t kSumRowsBlock = 64;

// Channels that short_conv takes at a time: a few rows of them stay in L1, a row of them fills cache lines.
inline constexpr int64_t kConvChannels = 64;
struct ShortConvDims {
  int64_t tokens, channels, taps;
  bool silu;
};
// Gradients and what they are added to; nullptr: none, or zeros. Those of one parameter may be one array.
struct ShortConvGradients {
  const float *acc_w_CL, *acc_bias_C;
  float *d_w_CL, *d_bias_C;
};

// Rows of norms: one group of each of several rows of so many groups.
struct NormedRows {
  int64_t rows, width, groups;
};

// Heads of a row, and which of their elements turn: [first, first + turning).
struct RotaryHeads {
  int64_t heads, head_dim, first, turning;
};

// What xielu multiplies by (graph/ops/xielu.cc), and the sums over elements that the gradients of its two numbers are
// made of: of d_y x^2 above 0, and of d_y (exp(min(x, eps)) - 1 - x) elsewhere.
struct XieluNumbers {
  float p, n, beta, eps;
};
struct XieluSums {
  float p, n;
};

struct Draws {
  uint32_t keys[10][2];   // Philox key of each round
  uint32_t step0, step1;  // upper half of its counter
};

// T: float or bf16. Letters of dims as in graph/op_list.inc.
template <class T>
struct VectorKernelsOf {
  void (*add)(const T* a, const T* b, T* y, int64_t n);
  void (*scale)(const T* x, float factor, T* y, int64_t n);
  void (*accumulate)(const T* x, float* sum, int64_t n);  // sum += x
  // Of one row: each column times its factor.
  void (*scale_columns)(const T* x, const float* factor, T* y, int64_t n);
  // d_x = factor * d_y; sum += reciprocal * d_y * x.
  void (*scale_columns_backward)(const T* d_y, const T* x, const float* factor, const float* reciprocal, T* d_x,
                                 float* sum, int64_t n);
  void (*relu)(const T* x, T* y, int64_t n);
  void (*relu_backward)(const T* d_y, const T* y, T* d_x, int64_t n);
  void (*relu_squared)(const T* x, T* y, int64_t n);
  void (*relu_squared_backward)(const T* d_y, const T* x, T* d_x, int64_t n);
  void (*clamp)(const T* x, float limit, T* y, int64_t n);
  void (*clamp_backward)(const T* d_y, const T* x, float limit, T* d_x, int64_t n);
  void (*gelu_erf)(const T* x, T* y, int64_t n);
  void (*gelu_erf_backward)(const T* d_y, const T* x, T* d_x, int64_t n);
  void (*gelu_tanh)(const T* x, T* y, int64_t n);
  void (*gelu_tanh_backward)(const T* d_y, const T* x, T* d_x, int64_t n);
  void (*xielu)(const T* x, const XieluNumbers& of, T* y, int64_t n);
  // REQUIRES: n is small enough for sums in f32.
  XieluSums (*xielu_backward)(const T* d_y, const T* x, const XieluNumbers& of, T* d_x, int64_t n);
  struct Glu {
    void (*forward)(const T* gate, const T* up, T* h, int64_t n);
    void (*backward)(const T* d_h, const T* gate, const T* up, T* d_gate, T* d_up, int64_t n);
  };
  Glu swiglu, geglu_erf, geglu_tanh, glu_sigmoid, glu_identity;
  // Of n pairs (gate, up), clamped.
  void (*clamped_glu)(const T* pairs, float alpha, float limit, T* h, int64_t n);
  void (*clamped_glu_backward)(const T* d_h, const T* pairs, float alpha, float limit, T* d_pairs, int64_t n);
  void (*softcap)(const T* x, float cap, T* y, int64_t n);
  // Elements [begin, begin + n) of the value; x and y point at the first of them. REQUIRES: begin % 64 == 0.
  // An element survives, times `scale`, if the upper 24 bits of its draw are at least `threshold`.
  void (*dropout)(const Draws& draws, uint32_t threshold, float scale, const T* x, T* y, int64_t begin, int64_t n);
  void (*noise)(const Draws& draws, float magnitude, const T* x, T* y, int64_t begin, int64_t n);
  void (*stochastic_round)(const Draws& draws, const T* x, bf16* y, int64_t begin, int64_t n);

  struct RmsNorm {
    void (*forward)(const T* x_TD, const T* w_D, double eps, const NormedRows& of, T* y_TD, float* rstd_T);
    // acc_TD and d_w_D may be nullptr; d_w_D is overwritten with the sum over these rows.
    void (*backward)(const T* d_y_TD, const T* x_TD, const T* w_D, const float* rstd_T, const T* acc_TD,
                     const NormedRows& of, T* d_x_TD, float* d_w_D);
  };
  RmsNorm rms_norm, rms_norm_plus_one;
  struct LayerNorm {
    // b_D may be nullptr.
    void (*forward)(const T* x_TD, const T* w_D, const T* b_D, double eps, const NormedRows& of, T* y_TD, float* mean_T,
                    float* rstd_T);
    // As above; d_b_D may be nullptr, too.
    void (*backward)(const T* d_y_TD, const T* x_TD, const T* w_D, const float* mean_T, const float* rstd_T,
                     const T* acc_TD, const NormedRows& of, T* d_x_TD, float* d_w_D, float* d_b_D);
  };
  LayerNorm layer_norm, layer_norm_plus_one;
  // sign -1: inverse. table_TR: R elements of each head turn.
  void (*rope)(const T* x, const float* table_TR, float sign, int64_t rows, const RotaryHeads& of, T* y);
  void (*rope_interleaved)(const T* x, const float* table_TR, float sign, int64_t rows, const RotaryHeads& of, T* y);

  // Of one token: y_D = sum over a of weight_A[a] * row place_A[a] of y_PD + acc_D. weight_A (1) and acc_D may be
  // nullptr.
  void (*combine)(const T* y_PD, const int32_t* place_A, const float* weight_A, const T* acc_D, int64_t A, int64_t D,
                  T* y_D);
  // d_y_D times each weight into the token's rows of d_y_PD, and its product with each row of y_PD.
  void (*combine_backward)(const T* d_y_D, const T* y_PD, const int32_t* place_A, const float* weight_A, int64_t A,
                           int64_t D, T* d_y_PD, float* d_weight_A);

  // Channels [begin, end) of all tokens; bias_C: nullptr for none. REQUIRES: begin is a multiple of kConvChannels.
  void (*short_conv)(const T* x_TC, const T* w_CL, const T* bias_C, const int32_t* start_T, const ShortConvDims& dims,
                     int64_t begin, int64_t end, T* y_TC);
  // One step of decoding: state_NLC, [slots, taps - 1, channels], is changed in place.
  void (*short_conv_cached)(const T* x_SC, const T* w_CL, const T* bias_C, const int32_t* slot_S,
                            const int32_t* position_S, const ShortConvDims& dims, int64_t begin, int64_t end,
                            T* state_NLC, T* y_SC);
  void (*short_conv_backward)(const T* d_y_TC, const T* x_TC, const T* w_CL, const T* bias_C, const int32_t* start_T,
                              const ShortConvDims& dims, int64_t begin, int64_t end, T* d_x_TC,
                              const ShortConvGradients& of);

  // y[c] = acc[c] (0 if nullptr) + sum over rows of x[row * stride + c], c < columns <= kSumRowsColumns.
  void (*sum_rows)(const T* x, int64_t rows, int64_t stride, int64_t columns, const float* acc, float* y);
  double (*sum_squares)(const T* g, int64_t n);

  void (*from_f32)(const float* x, T* y, int64_t n);
  void (*to_f32)(const T* x, float* y, int64_t n);
  // `weight` may be nullptr. The states may be updated in place.
  void (*adamw)(const AdamwScalars& scalars, const float* master, const float* g, const float* m, const float* v,
                float* new_master, float* new_m, float* new_v, T* weight, int64_t n);
  // As above; `momentum` and `new_momentum` are both set or both nullptr.
  void (*sgd)(const SgdScalars& scalars, const float* master, const float* g, const float* momentum, float* new_master,
              float* new_momentum, T* weight, int64_t n);
  void (*lion)(const LionScalars& scalars, const float* master, const float* g, const float* mean, float* new_master,
               float* new_mean, T* weight, int64_t n);
  // sums[c] = sum over rows of g[row, c]^2.
  void (*adafactor_squares)(const float* g, int64_t rows, int64_t columns, float* sums);
  // Of n elements of a row, whose steps are of_row * of_columns[c] * g[c]: the sum of their squares; the update.
  double (*adafactor_squares_of_step)(float of_row, const float* of_columns, const float* g, int64_t n);
  void (*adafactor_step)(float keep, float minus_step, float of_row, const float* of_columns, const float* master,
                         const float* g, float* new_master, T* weight, int64_t n);
  void (*average)(const AverageScalars& scalars, const float* average, const float* weight, float* new_average,
                  int64_t n);
};

struct VectorKernels {
  VectorKernelsOf<float> f32;
  VectorKernelsOf<bf16> bf16_;
};

extern const VectorKernels kVectorKernelsAvx2, kVectorKernelsAvx512;
extern const VectorKernelsOf<bf16> kBf16VectorsAvx512Bf16;  // with that set's rounding instruction

// The table for elements of type T. REQUIRES: isa > kScalar.
template <class T>
const VectorKernelsOf<T>& VectorsFor(Isa isa);
template <>
inline const VectorKernelsOf<float>& VectorsFor<float>(Isa isa) {
  return isa >= Isa::kAvx512 ? kVectorKernelsAvx512.f32 : kVectorKernelsAvx2.f32;
}
template <>
inline const VectorKernelsOf<bf16>& VectorsFor<bf16>(Isa isa) {
  if (isa >= Isa::kAvx512Bf16) return kBf16VectorsAvx512Bf16;
  return isa == Isa::kAvx512 ? kVectorKernelsAvx512.bf16_ : kVectorKernelsAvx2.bf16_;
}

}  // namespace temper
