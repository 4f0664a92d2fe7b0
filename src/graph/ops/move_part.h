// Which part of their operands fetch and evict move.
#pragma once

#include "graph/rule.h"

namespace temper {

// Bytes of a source or a destination, from `begin` on.
struct MovedBytes {
  Bytes from, to;  // where they begin in the first input, and in the output
  Bytes size;
};

// REQUIRES: operands and attributes that fit the op's rule. `in`: of the first input.
inline MovedBytes MovedBytesOf(const TensorType& in, size_t num_inputs, const TensorType& out, const Attributes& a) {
  const Bytes begin{a.Has("begin") ? a.Int("begin") * SizeOf(in.dtype) : 0};
  if (num_inputs == 2) return {.from = {}, .to = begin, .size = in.bytes()};
  return {.from = begin, .to = {}, .size = out.bytes()};
}

}  // namespace temper
