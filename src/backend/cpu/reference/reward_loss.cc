// Reward loss by its definition: for each token, the pair that it belongs to is looked for anew.
#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/call.h"

namespace temper::reference {
namespace {

// -log sigmoid(x)
double Cost(double x) {
  return std::max(-x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

}  // namespace

Status RewardLoss(const Call& call) {
  const int first = call.attributes().Flag("own") ? 1 : 0;
  const Operand reward = call.In(first), document = call.In(first + 1), sample = call.In(first + 2),
                margin = call.In(first + 3);
  const double center = call.attributes().DoubleOr("center", 0);
  const bool grad = call.attributes().Flag("grad");
  const int64_t T = reward.elements(), begin = call.attributes().IntOr("begin", 0),
                end = first == 1 ? begin + call.In(0).elements() : T;
  for (int64_t t = 0; t < T; ++t) {
    for (int k = 0; k < call.num_outputs(); ++k) call.Out(k).Store(t, 0);
    const int64_t start = sample.Int(t);
    int64_t last[2] = {-1, -1};  // of the chosen answer, of the rejected one
    for (int64_t i = 0; i < T; ++i) {
      if (sample.Int(i) == start) last[document.Int(i) == start ? 0 : 1] = i;
    }
    if (last[0] < 0 || last[1] < 0) continue;  // padding
    const double chosen = reward[last[0]], rejected = reward[last[1]];
    const double z = chosen - rejected - margin[start], sum = chosen + rejected;
    if (grad && (t == last[0] || t == last[1]) && t >= begin && t < end) {
      const double slope = -1 / (1 + std::exp(z));
      call.Out(5).Store(t, (t == last[0] ? slope : -slope) + 2 * center * sum);
    }
    if (t != start) continue;
    call.Out(0).Store(t, Cost(z) + center * sum * sum);
    call.Out(1).Store(t, chosen);
    call.Out(2).Store(t, rejected);
    call.Out(3).Store(t, chosen > rejected ? 1 : 0);
    call.Out(4).Store(t, chosen - rejected);
  }
  return OkStatus();
}

}  // namespace temper::reference
