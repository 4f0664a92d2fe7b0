#include "backend/cpu/pointwise/muon_step.h"

#include <algorithm>
#include <cmath>

#include "graph/attributes.h"
#include "graph/op.h"

namespace temper {

MuonScalars PrepareMuon(const Attributes& attributes, int64_t rows, int64_t columns, const float* clip_2,
                        const double* scalars) {
  const double rate = scalars[kScalarLearningRate] * attributes.DoubleOr("lr_factor", 1);
  const double momentum = attributes.Double("momentum");
  const auto r = static_cast<double>(rows), c = static_cast<double>(columns);
  // PyTorch's adjust_lr_fn "match_rms_adamw" and "original".
  const double factor =
      attributes.Flag("match_rms_adamw") ? 0.2 * std::sqrt(std::max(r, c)) : std::sqrt(std::max(1.0, r / c));
  return {.clip = clip_2[0],
          .momentum = static_cast<float>(momentum),
          .one_minus_momentum = static_cast<float>(1 - momentum),
          .nesterov = attributes.Flag("nesterov"),
          .minus_step = static_cast<float>(-rate * factor),
          .keep = static_cast<float>(1 - rate * attributes.Double("weight_decay"))};
}

}  // namespace temper
