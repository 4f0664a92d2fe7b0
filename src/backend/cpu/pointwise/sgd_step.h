// SGD with momentum as torch.optim.SGD, in f32 arithmetic prescribed to the bit, as adamw_step.h does for AdamW. Per
// element, with each line one IEEE operation of f32 (fma, product), rounded to nearest:
//   g  = gradient * clip                d  = fma(weight_decay, w, g)
//   b' = fma(momentum, b, d)            without momentum there is no b, and a = d
//   a  = b'                             with Nesterov's: a = fma(momentum, b', d)
//   w' = fma(minus_rate, a, w)
// PyTorch starts b at the first gradient; zeros give the same.
#pragma once

namespace temper {

// The scalars, each computed in double and rounded to f32 once.
struct SgdScalars {
  float clip;  // factor on every gradient
  float weight_decay;
  float momentum;
  float minus_rate;  // -learning_rate, of the step times the attribute lr_factor
  bool nesterov;
};

class Attributes;
// `clip_2` and `scalars` as graph/op.h lays them out.
SgdScalars PrepareSgd(const Attributes& attributes, const float* clip_2, const double* scalars);

}  // namespace temper
