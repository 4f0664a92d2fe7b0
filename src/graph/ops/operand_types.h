// What rules ask of the types of operands.
#pragma once

#include "tensor/shape.h"

namespace temper {

// Parameter gradients accumulate in f32 for any type of activations; f64 graphs (finite differences) stay f64.
inline DType GradientDType(DType activation) {
  return activation == DType::kF64 ? DType::kF64 : DType::kF32;
}

// Statistics of normalisations and attention (rstd, lse): f32, or f64 in f64 graphs.
inline DType StatisticDType(DType activation) {
  return GradientDType(activation);
}

inline bool IsMatrix(const TensorType& t) {
  return t.shape.rank() == 2;
}
inline bool IsVector(const TensorType& t, int64_t n) {
  return t.shape.rank() == 1 && t.shape[0] == n;
}
inline bool IsFloat(const TensorType& t) {
  return t.dtype == DType::kF32 || t.dtype == DType::kBF16 || t.dtype == DType::kF64;
}
inline bool IsFloatVector(const TensorType& t, int64_t n) {
  return IsFloat(t) && IsVector(t, n);
}
// One statistic per row of `x`.
inline bool IsStatistic(const TensorType& t, const TensorType& x) {
  return t.dtype == StatisticDType(x.dtype) && IsVector(t, x.shape[0]);
}
inline bool IsIndex(const TensorType& t, int64_t n) {
  return t.dtype == DType::kI32 && IsVector(t, n);
}

}  // namespace temper
