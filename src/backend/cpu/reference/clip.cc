// Clipping by global norm as torch.nn.utils.clip_grad_norm_, on gradients of the loss sum: the mean's gradient is that
// divided by the token count N, so norm = sqrt(sum of squares) / N and
// factor = 1/N * min(1, max_norm / (norm + 1e-6)); max_norm 0 clips nothing.
#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/call.h"

namespace temper::reference {

Status Clip(const Call& call) {
  const Operand scalars = call.In(call.num_inputs() - 1), out_2 = call.Out(0);
  const double max_norm = call.attributes().DoubleOr("max_norm", 0), count = scalars[kScalarTokenCount];
  double total = 0;
  for (int i = 0; i + 1 < call.num_inputs(); ++i) total += call.In(i)[0];
  const double norm = std::sqrt(total) / count;
  const double coefficient = max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
  out_2.Store(0, coefficient / count);
  out_2.Store(1, norm);
  return OkStatus();
}

}  // namespace temper::reference
