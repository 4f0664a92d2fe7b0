// Which part of their operands fetch and evict move.
#pragma once

#include <algorithm>

#include "graph/rule.h"

namespace temper {

// Bytes of a source or a destination, from `begin` on.
struct MovedBytes {
  Bytes from, to;  // where they begin in the first input, and in the output
  Bytes size;
};

// REQUIRES: operands and attributes that fit the op's rule. `in`: of the first input. Of a routed fetch the whole
// stack: which of its matrices move is known when it runs.
inline MovedBytes MovedBytesOf(const TensorType& in, size_t num_inputs, const TensorType& out, const Attributes& a) {
  if (a.Flag("routed")) return {.from = {}, .to = {}, .size = in.bytes()};
  const Bytes begin{a.Has("begin") ? a.Int("begin") * SizeOf(in.dtype) : 0};
  if (num_inputs == 2) return {.from = {}, .to = begin, .size = in.bytes()};
  return {.from = begin, .to = {}, .size = out.bytes()};
}

// Bytes of a stack that a routed fetch moves at most: each row may have an expert of its own.
inline Bytes MostRouted(const TensorType& stack, int64_t rows) {
  const int64_t matrices = stack.shape[0];
  return {stack.bytes().v / matrices * std::min(rows, matrices)};
}

// Bytes that go over a link. `second`: of the second input, or null.
inline Bytes BytesOnLink(const TensorType& in, const TensorType* second, const TensorType& out, const Attributes& a) {
  if (a.Flag("routed")) return MostRouted(in, second->shape.elements());
  return MovedBytesOf(in, second != nullptr ? 2 : 1, out, a).size;
}

}  // namespace temper
