// The sum of squares of a gradient, for the norm: a fixed tree over blocks of 4096 elements. Each block is summed in
// double in order, then the blocks' sums in order: the same whatever the number of threads or ranks that share the
// work.
#include "backend/cpu/reference/call.h"

namespace temper::reference {

Status SumSquares(const Call& call) {
  constexpr int64_t kBlock = 4096;
  const Operand g = call.In(0);
  double total = 0;
  for (int64_t begin = 0; begin < g.elements(); begin += kBlock) {
    double sum = 0;
    for (int64_t i = begin; i < begin + kBlock && i < g.elements(); ++i) sum += g[i] * g[i];
    total += sum;
  }
  call.Out(0).Store(0, total);
  return OkStatus();
}

}  // namespace temper::reference
