// Unpaired preference by its definition: for each token, the answer that it belongs to is summed anew.
#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/call.h"

namespace temper::reference {

Status UnpairedPreference(const Call& call) {
  const Operand logprob = call.In(0), target = call.In(1), reference = call.In(2), document = call.In(3),
                rating = call.In(4), kl = call.In(5);
  const double beta = call.attributes().Double("beta");
  const int64_t T = logprob.elements();
  for (int64_t t = 0; t < T; ++t) {
    const int64_t start = document.Int(t);
    double sum = 0;
    for (int64_t i = 0; i < T; ++i) {
      if (document.Int(i) == start && target.Int(i) >= 0) sum += logprob[i];
    }
    if (logprob.type().dtype == DType::kF32) sum = static_cast<float>(sum);
    for (int k = 0; k < call.num_outputs(); ++k) call.Out(k).Store(t, 0);
    if (rating[t] == 0) continue;  // padding
    const bool good = rating[t] > 0;
    const double weight = call.attributes().Double(good ? "good_weight" : "bad_weight");
    const double ratio = sum - reference[t], sign = good ? 1 : -1;
    const double win = 1 / (1 + std::exp(-beta * sign * (ratio - kl[t])));
    // d (1 - win) / d ratio = -beta sign win (1 - win)
    if (target.Int(t) >= 0) call.Out(0).Store(t, weight * beta * sign * win * (1 - win));
    if (t != start) continue;
    call.Out(1).Store(t, weight * (1 - win));
    call.Out(good ? 2 : 3).Store(t, beta * ratio * std::abs(rating[t]));
    call.Out(4).Store(t, beta * ratio * rating[t]);
    call.Out(5).Store(t, kl[t]);
  }
  return OkStatus();
}

}  // namespace temper::reference
