// What products share whose weight, input 1, may be kept in a quantised format: linear, linear_dx and the loss.
#pragma once

#include "graph/ops/operand_types.h"
#include "graph/rule.h"

namespace temper {

// A weight in the type of `x`, or in a quantised format that is computed in it.
inline bool IsWeightFor(const TensorType& x, const TensorType& w) {
  return IsMatrix(w) && w.dtype.compute() == x.dtype;
}

// The attribute `dequantise`: the kernel first writes all numbers of w to its scratch, in the type that it computes in.
// Without it the kernel dequantises the pieces that it packs.
inline bool DequantisesFirst(const Attributes& a) {
  return a.Flag("dequantise");
}
// `dequantise` is allowed only where w is quantised.
inline bool DequantiseFits(const TensorType& w, const Attributes& a) {
  return !DequantisesFirst(a) || w.dtype.quantised();
}

// What dequantising w first moves: read as it is kept, written to scratch.
inline Bytes DequantisedBytes(const Types& in, const Attributes& a) {
  return DequantisesFirst(a) ? in[1].bytes() + in[1].computed().bytes() : Bytes{};
}
// Adds that to the cost of a kernel, which has w's bytes as it is kept: w's numbers are then written and read.
inline void AddDequantising(const Types& in, const Attributes& a, Cost* cost) {
  if (!DequantisesFirst(a)) return;
  const Bytes numbers = in[1].computed().bytes();
  cost->read += numbers;
  cost->written += numbers;
}

}  // namespace temper
