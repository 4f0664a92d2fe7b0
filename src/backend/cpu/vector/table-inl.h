// The table of one instruction set. Included after its vec_*.h; the order below is the order of use.
#pragma once

#include "backend/cpu/vector/vector_kernels.h"

// clang-format off
#include "backend/cpu/vector/sweep-inl.h"
#include "backend/cpu/vector/exp-inl.h"
#include "backend/cpu/vector/elementwise-inl.h"
#include "backend/cpu/vector/activation-inl.h"
#include "backend/cpu/vector/adafactor-inl.h"
#include "backend/cpu/vector/adamw-inl.h"
#include "backend/cpu/vector/average-inl.h"
#include "backend/cpu/vector/combine-inl.h"
#include "backend/cpu/vector/draws-inl.h"
#include "backend/cpu/vector/lion-inl.h"
#include "backend/cpu/vector/norm-inl.h"
#include "backend/cpu/vector/reduce-inl.h"
#include "backend/cpu/vector/rope-inl.h"
#include "backend/cpu/vector/sgd-inl.h"
#include "backend/cpu/vector/short_conv-inl.h"
// clang-format on

namespace temper {
namespace {

template <class T>
constexpr VectorKernelsOf<T> kTableOf = {.add = Add<T>,
                                         .scale = Scale<T>,
                                         .accumulate = Accumulate<T>,
                                         .scale_columns = ScaleColumns<T>,
                                         .scale_columns_backward = ScaleColumnsBackward<T>,
                                         .relu = Relu<T>,
                                         .relu_backward = ReluBackward<T>,
                                         .relu_squared = ReluSquared<T>,
                                         .relu_squared_backward = ReluSquaredBackward<T>,
                                         .clamp = Clamp<T>,
                                         .clamp_backward = ClampBackward<T>,
                                         .gelu_erf = GeluLoop<GeluErf, T>,
                                         .gelu_erf_backward = GeluBackward<GeluErf, T>,
                                         .gelu_tanh = GeluLoop<GeluTanh, T>,
                                         .gelu_tanh_backward = GeluBackward<GeluTanh, T>,
                                         .xielu = Xielu<T>,
                                         .xielu_backward = XieluBackward<T>,
                                         .swiglu = {Swiglu<T>, SwigluBackward<T>},
                                         .geglu_erf = {Glu<GeluErf, T>, GluBackward<GeluErf, T>},
                                         .geglu_tanh = {Glu<GeluTanh, T>, GluBackward<GeluTanh, T>},
                                         .glu_sigmoid = {Glu<Sigmoid, T>, GluBackward<Sigmoid, T>},
                                         .glu_identity = {Glu<Identity, T>, GluBackward<Identity, T>},
                                         .clamped_glu = ClampedGlu<T>,
                                         .clamped_glu_backward = ClampedGluBackward<T>,
                                         .softcap = Softcap<T>,
                                         .dropout = Dropout<T>,
                                         .noise = Noise<T>,
                                         .stochastic_round = StochasticRound<T>,
                                         .rms_norm = {RmsNorm<T>, RmsNormBackward<T>},
                                         .rms_norm_plus_one = {RmsNorm<T, true>, RmsNormBackward<T, true>},
                                         .layer_norm = {LayerNorm<T>, LayerNormBackward<T>},
                                         .layer_norm_plus_one = {LayerNorm<T, true>, LayerNormBackward<T, true>},
                                         .rope = Rope<T>,
                                         .rope_interleaved = RopeInterleaved<T>,
                                         .combine = Combine<T>,
                                         .combine_backward = CombineBackward<T>,
                                         .short_conv = ShortConv<T>,
                                         .short_conv_cached = ShortConvCached<T>,
                                         .short_conv_backward = ShortConvBackward<T>,
                                         .sum_rows = SumRows<T>,
                                         .sum_squares = SumSquares<T>,
                                         .from_f32 = Convert<float, T>,
                                         .to_f32 = Convert<T, float>,
                                         .adamw = Adamw<T>,
                                         .sgd = Sgd<T>,
                                         .lion = Lion<T>,
                                         .adafactor_squares = AdafactorSquares,
                                         .adafactor_squares_of_step = AdafactorSquaresOfStep,
                                         .adafactor_step = AdafactorStep<T>,
                                         .average = Average};

}  // namespace
}  // namespace temper
