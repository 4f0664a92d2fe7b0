// Lion, in f32 arithmetic prescribed to the bit, as adamw_step.h does for AdamW. Per element, with each line one IEEE
// operation of f32 (fma, product), rounded to nearest:
//   g  = gradient * clip
//   d  = fma(beta1, m, one_minus_beta1 * g)        the product is rounded
//   w' = fma(minus_rate, sign(d), keep * w)        the product is rounded; sign(0) and sign(NaN) are 0
//   m' = fma(beta2, m, one_minus_beta2 * g)        the product is rounded
#pragma once

namespace temper {

// The scalars, each computed in double and rounded to f32 once.
struct LionScalars {
  float clip;  // factor on every gradient
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float minus_rate;  // -learning_rate, of the step times the attribute lr_factor
  float keep;        // 1 - learning_rate * weight_decay
};

class Attributes;
// `clip_2` and `scalars` as graph/op.h lays them out.
LionScalars PrepareLion(const Attributes& attributes, const float* clip_2, const double* scalars);

}  // namespace temper
