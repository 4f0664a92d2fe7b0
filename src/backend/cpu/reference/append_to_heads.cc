// Each head's elements, then those of the tail, which all heads share; and the way back, where the heads' gradients of
// the tail are added up.
#include "backend/cpu/reference/call.h"

namespace temper::reference {

Status AppendToHeads(const Call& call) {
  const Operand x = call.In(0), tail = call.In(1), y = call.Out(0);
  const int64_t H = call.attributes().Int("heads"), N = x.columns() / H, R = tail.columns();
  int64_t at = 0;
  for (int64_t t = 0; t < x.rows(); ++t) {
    for (int64_t h = 0; h < H; ++h) {
      for (int64_t n = 0; n < N; ++n) y.Store(at++, x[(t * H + h) * N + n]);
      for (int64_t r = 0; r < R; ++r) y.Store(at++, tail[t * R + r]);
    }
  }
  return OkStatus();
}

Status AppendToHeadsBackward(const Call& call) {
  const Operand d_y = call.In(0), d_x = call.Out(0), d_tail = call.Out(1);
  const int64_t H = call.attributes().Int("heads"), N = d_x.columns() / H, R = d_tail.columns();
  for (int64_t t = 0; t < d_y.rows(); ++t) {
    for (int64_t h = 0; h < H; ++h) {
      for (int64_t n = 0; n < N; ++n) d_x.Store((t * H + h) * N + n, d_y[(t * H + h) * (N + R) + n]);
    }
    for (int64_t r = 0; r < R; ++r) {
      double sum = 0;
      for (int64_t h = 0; h < H; ++h) sum += d_y[(t * H + h) * (N + R) + N + r];
      d_tail.Store(t * R + r, sum);
    }
  }
  return OkStatus();
}

}  // namespace temper::reference
