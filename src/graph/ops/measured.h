// The operands with which memory-bound ops are measured (OpRule::measured).
#pragma once

#include <utility>
#include <vector>

#include "graph/rule.h"

namespace temper {

// One vector, then operands that fit in the second, the third and no cache.
struct MeasuredExtent {
  int64_t T, D;
};
inline constexpr MeasuredExtent kMeasuredExtents[] = {{1, 64}, {64, 512}, {1024, 512}, {8192, 1024}};

// At each extent, with the operands that `inputs_of(x_TD)` returns.
template <class InputsOf>
std::vector<MeasuredCase> MeasuredAtExtents(DType dtype, const Attributes& attributes, const InputsOf& inputs_of) {
  std::vector<MeasuredCase> cases;
  for (const auto& [T, D] : kMeasuredExtents) {
    cases.push_back({.inputs = inputs_of(TensorType{dtype, {T, D}}), .attributes = attributes});
  }
  return cases;
}

// With `n` operands like the activations.
inline std::vector<MeasuredCase> MeasuredAlike(DType dtype, size_t n, const Attributes& attributes) {
  return MeasuredAtExtents(dtype, attributes, [n](const TensorType& x) { return Types(n, x); });
}

}  // namespace temper
