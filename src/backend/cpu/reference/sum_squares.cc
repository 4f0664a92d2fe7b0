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

// What the stages of a pipeline have summed of their own gradients is one number before it is added up between them.
Status SumScalars(const Call& call) {
  double total = 0;
  for (int i = 0; i < call.num_inputs(); ++i) total += call.In(i)[0];
  call.Out(0).Store(0, total);
  return OkStatus();
}

}  // namespace temper::reference
