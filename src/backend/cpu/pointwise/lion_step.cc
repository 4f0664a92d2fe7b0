#include "backend/cpu/pointwise/lion_step.h"

#include "graph/attributes.h"
#include "graph/op.h"

namespace temper {

LionScalars PrepareLion(const Attributes& attributes, const float* clip_2, const double* scalars) {
  const double rate = scalars[kScalarLearningRate] * attributes.DoubleOr("lr_factor", 1);
  const double beta1 = attributes.Double("beta1"), beta2 = attributes.Double("beta2");
  return {.clip = clip_2[0],
          .beta1 = static_cast<float>(beta1),
          .one_minus_beta1 = static_cast<float>(1 - beta1),
          .beta2 = static_cast<float>(beta2),
          .one_minus_beta2 = static_cast<float>(1 - beta2),
          .minus_rate = static_cast<float>(-rate),
          .keep = static_cast<float>(1 - rate * attributes.Double("weight_decay"))};
}

}  // namespace temper
