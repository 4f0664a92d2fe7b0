// AdamW (Loshchilov and Hutter 2019) as torch.optim.AdamW, in f32 arithmetic prescribed to the bit: every kernel, on
// every backend and instruction set, does exactly these roundings, so where a state lives changes no result. Per
// element, with each line one IEEE operation of f32 (fma, product, quotient, square root, sum), rounded to nearest:
//   g  = gradient * clip            n = one_minus_beta1 * g       m' = fma(beta1, m, n)
//   q  = g * g                      u = one_minus_beta2 * q       v' = fma(beta2, v, u)
//   r  = sqrt(v')                   s = r / root_correction2      d  = s + eps
//   a  = m' / d                     k = decay * w                 w' = fma(minus_step, a, k)
#pragma once

namespace temper {

// The scalars, each computed in double and rounded to f32 once.
struct AdamwScalars {
  float clip;  // factor on every gradient
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float root_correction2;  // sqrt(1 - beta2^t)
  float eps;
  float decay;       // 1 - learning_rate * weight_decay; the rate is the step's times the attribute lr_factor
  float minus_step;  // -learning_rate / (1 - beta1^t)
};

class Attributes;
// `clip_2` and `scalars` as graph/op.h lays them out.
AdamwScalars PrepareAdamw(const Attributes& attributes, const float* clip_2, const double* scalars);

}  // namespace temper
