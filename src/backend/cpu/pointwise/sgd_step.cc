#include "backend/cpu/pointwise/sgd_step.h"

#include "graph/attributes.h"
#include "graph/op.h"

namespace temper {

SgdScalars PrepareSgd(const Attributes& attributes, const float* clip_2, const double* scalars) {
  return {.clip = clip_2[0],
          .weight_decay = static_cast<float>(attributes.Double("weight_decay")),
          .momentum = static_cast<float>(attributes.Double("momentum")),
          .minus_rate = static_cast<float>(-scalars[kScalarLearningRate] * attributes.DoubleOr("lr_factor", 1)),
          .nesterov = attributes.Flag("nesterov")};
}

}  // namespace temper
