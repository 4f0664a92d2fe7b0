// AdamW: in f32, operation by operation as backend/cpu/pointwise/adamw_step.h prescribes.
#include <cmath>

#include "backend/cpu/pointwise/adamw_step.h"
#include "backend/cpu/reference/call.h"

namespace temper::reference {

Status Adamw(const Call& call) {
  const Operand master = call.In(0), gradient = call.In(1), moment1 = call.In(2), moment2 = call.In(3);
  const AdamwScalars c = PrepareAdamw(call.attributes(), reinterpret_cast<const float*>(call.In(4).data()),
                                      reinterpret_cast<const double*>(call.In(5).data()));
  const bool weight = call.attributes().Flag("weight");
  for (int64_t i = 0; i < master.elements(); ++i) {
    const float g = static_cast<float>(gradient[i]) * c.clip;
    const float m = std::fma(c.beta1, static_cast<float>(moment1[i]), c.one_minus_beta1 * g);
    const float q = g * g;
    const float v = std::fma(c.beta2, static_cast<float>(moment2[i]), c.one_minus_beta2 * q);
    const float d = std::sqrt(v) / c.root_correction2 + c.eps;
    const float w = std::fma(c.minus_step, m / d, c.decay * static_cast<float>(master[i]));
    call.Out(0).Store(i, w);
    call.Out(1).Store(i, m);
    call.Out(2).Store(i, v);
    if (weight) call.Out(3).Store(i, w);
  }
  return OkStatus();
}

}  // namespace temper::reference
