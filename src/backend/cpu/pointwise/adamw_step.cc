#include "backend/cpu/pointwise/adamw_step.h"

#include <cmath>

#include "graph/attributes.h"
#include "graph/op.h"

namespace temper {

AdamwScalars PrepareAdamw(const Attributes& attributes, const float* clip_2, const double* scalars) {
  const double beta1 = attributes.Double("beta1"), beta2 = attributes.Double("beta2");
  const double learning_rate = scalars[kScalarLearningRate] * attributes.DoubleOr("lr_factor", 1);
  return {.clip = clip_2[0],
          .beta1 = static_cast<float>(beta1),
          .one_minus_beta1 = static_cast<float>(1 - beta1),
          .beta2 = static_cast<float>(beta2),
          .one_minus_beta2 = static_cast<float>(1 - beta2),
          .root_correction2 = static_cast<float>(std::sqrt(scalars[kScalarBiasCorrection2])),
          .eps = static_cast<float>(attributes.Double("eps")),
          .decay = static_cast<float>(1 - learning_rate * attributes.Double("weight_decay")),
          .minus_step = static_cast<float>(-learning_rate / scalars[kScalarBiasCorrection1])};
}

}  // namespace temper
