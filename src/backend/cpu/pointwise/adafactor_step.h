// Adafactor as transformers has it, without relative steps and first moments. Of matrices [R, C], each row or column of
// which keeps a mean of squares (rows_R, columns_C); g = gradient * clip, beta2 = 1 - t^decay_rate:
//   rows'    = beta2 * rows + (1 - beta2) * (mean over C of g^2 + eps)
//   columns' = beta2 * columns + (1 - beta2) * (mean over R of g^2 + eps)
//   u        = g * sqrt(mean(rows') / rows') / sqrt(columns')
// of a vector, which keeps v:
//   v'       = beta2 * v + (1 - beta2) * (g^2 + eps)           u = g / sqrt(v')
// and of either, the root of a mean of squares over all of the value:
//   rate     = the step's, where scale_parameter is set times max(0.001, rms(w))
//   w'       = (1 - rate * weight_decay) * w - rate / max(1, rms(u) / clip_threshold) * u
// States, factors and elements are f32, sums double.
#pragma once

#include <cstdint>

namespace temper {

class Attributes;

// Each computed in double; those of elements rounded to f32 once.
struct AdafactorScalars {
  float clip;  // factor on every gradient
  float beta2, one_minus_beta2;
  double eps, threshold;
  double rate;  // of the step times the attribute lr_factor
  double weight_decay;
  bool scales;  // the attribute scale_parameter

  float Next(float mean, double square) const {
    return beta2 * mean + one_minus_beta2 * static_cast<float>(square + eps);
  }
};
// `clip_2` and `scalars` as graph/op.h lays them out.
AdafactorScalars PrepareAdafactor(const Attributes& attributes, const float* clip_2, const double* scalars);

// Of all elements of a value.
struct AdafactorFactors {
  double keep, minus_step;
};
// `n` elements; sums of squares of u and, where they are asked for, of w.
AdafactorFactors AdafactorFactorsOf(const AdafactorScalars& s, int64_t n, double squares_of_u, double squares_of_w);

}  // namespace temper
