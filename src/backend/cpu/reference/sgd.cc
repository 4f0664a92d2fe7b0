// SGD: in f32, operation by operation as backend/cpu/pointwise/sgd_step.h prescribes.
#include "backend/cpu/pointwise/sgd_step.h"

#include <cmath>

#include "backend/cpu/reference/call.h"

namespace temper::reference {

Status Sgd(const Call& call) {
  const bool buffer = call.attributes().Flag("buffer"), weight = call.attributes().Flag("weight");
  const Operand master = call.In(0), gradient = call.In(1);
  const int clip = buffer ? 3 : 2;
  const SgdScalars c = PrepareSgd(call.attributes(), reinterpret_cast<const float*>(call.In(clip).data()),
                                  reinterpret_cast<const double*>(call.In(clip + 1).data()));
  for (int64_t i = 0; i < master.elements(); ++i) {
    const float before = static_cast<float>(master[i]);
    const float g = static_cast<float>(gradient[i]) * c.clip;
    const float d = std::fma(c.weight_decay, before, g);
    float ahead = d;
    if (buffer) {
      const float b = std::fma(c.momentum, static_cast<float>(call.In(2)[i]), d);
      call.Out(1).Store(i, b);
      ahead = c.nesterov ? std::fma(c.momentum, b, d) : b;
    }
    const float w = std::fma(c.minus_rate, ahead, before);
    call.Out(0).Store(i, w);
    if (weight) call.Out(buffer ? 2 : 1).Store(i, w);
  }
  return OkStatus();
}

}  // namespace temper::reference
