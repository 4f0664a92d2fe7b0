#include "backend/cpu/pointwise/adafactor_step.h"

#include <algorithm>
#include <cmath>

#include "graph/attributes.h"
#include "graph/op.h"

namespace temper {
namespace {

constexpr double kLeastScale = 1e-3;  // transformers' eps[1]

}  // namespace

AdafactorScalars PrepareAdafactor(const Attributes& attributes, const float* clip_2, const double* scalars) {
  const double one_minus_beta2 = scalars[kScalarBiasCorrection2];
  return {.clip = clip_2[0],
          .beta2 = static_cast<float>(1 - one_minus_beta2),
          .one_minus_beta2 = static_cast<float>(one_minus_beta2),
          .eps = attributes.Double("eps"),
          .threshold = attributes.Double("clip_threshold"),
          .rate = scalars[kScalarLearningRate] * attributes.DoubleOr("lr_factor", 1),
          .weight_decay = attributes.Double("weight_decay"),
          .scales = attributes.Flag("scale_parameter")};
}

AdafactorFactors AdafactorFactorsOf(const AdafactorScalars& s, int64_t n, double squares_of_u, double squares_of_w) {
  const auto rms = [&](double squares) { return std::sqrt(squares / static_cast<double>(n)); };
  const double rate = s.rate * (s.scales ? std::max(kLeastScale, rms(squares_of_w)) : 1);
  // Where the squares are no number, so is the step.
  const double times = rms(squares_of_u) / s.threshold;
  return {.keep = 1 - rate * s.weight_decay, .minus_step = -rate / (times <= 1 ? 1 : times)};
}

}  // namespace temper
