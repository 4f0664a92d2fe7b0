// Average: in f32, operation by operation as backend/cpu/pointwise/average_step.h prescribes.
#include "backend/cpu/pointwise/average_step.h"

#include <cmath>

#include "backend/cpu/reference/call.h"

namespace temper::reference {

Status Average(const Call& call) {
  const Operand average = call.In(0), weight = call.In(1);
  const AverageScalars s = PrepareAverage(call.In(3)[0]);
  for (int64_t i = 0; i < average.elements(); ++i) {
    const auto a = static_cast<float>(average[i]), w = static_cast<float>(weight[i]);
    call.Out(0).Store(i, static_cast<double>(std::fma(s.times, w - a, s.from_weight ? w : a)));
  }
  return OkStatus();
}

}  // namespace temper::reference
