// Lion: in f32, operation by operation as backend/cpu/pointwise/lion_step.h prescribes.
#include "backend/cpu/pointwise/lion_step.h"

#include <cmath>

#include "backend/cpu/reference/call.h"

namespace temper::reference {

Status Lion(const Call& call) {
  const bool weight = call.attributes().Flag("weight");
  const Operand master = call.In(0), gradient = call.In(1), mean = call.In(2);
  const LionScalars c = PrepareLion(call.attributes(), reinterpret_cast<const float*>(call.In(3).data()),
                                    reinterpret_cast<const double*>(call.In(4).data()));
  for (int64_t i = 0; i < master.elements(); ++i) {
    const float before = static_cast<float>(master[i]), m = static_cast<float>(mean[i]);
    const float g = static_cast<float>(gradient[i]) * c.clip;
    const float d = std::fma(c.beta1, m, c.one_minus_beta1 * g);
    const float sign = d > 0 ? 1 : d < 0 ? -1 : 0;
    const float w = std::fma(c.minus_rate, sign, c.keep * before);
    call.Out(0).Store(i, w);
    call.Out(1).Store(i, std::fma(c.beta2, m, c.one_minus_beta2 * g));
    if (weight) call.Out(2).Store(i, w);
  }
  return OkStatus();
}

}  // namespace temper::reference
