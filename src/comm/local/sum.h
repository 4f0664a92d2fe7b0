// Sums of several ranks' terms, element by element: in the order of the terms, in f32 (f64 for f64), then the
// accumulator, and rounded once. Every instruction set gives the same bits: there are only additions and one
// rounding.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace temper {

// out[i] = terms[0][i] + ... + terms[num_terms - 1][i] + acc[i]; acc may be nullptr. `out` may be any of the operands.
// bf16 as their bits. REQUIRES: num_terms >= 1.
struct SumKernels {
  void (*f32)(const float* const* terms, int num_terms, const float* acc, float* out, int64_t n);
  void (*bf16)(const uint16_t* const* terms, int num_terms, const uint16_t* acc, uint16_t* out, int64_t n);
  void (*f64)(const double* const* terms, int num_terms, const double* acc, double* out, int64_t n);
  // Between hosts: the sum of one host's terms is not rounded before those of all hosts are added up.
  void (*bf16_to_f32)(const uint16_t* const* terms, int num_terms, const float* acc, float* out, int64_t n);
  void (*f32_to_bf16)(const float* const* terms, int num_terms, const uint16_t* acc, uint16_t* out, int64_t n);
};

extern const SumKernels kSumKernelsScalar, kSumKernelsAvx2, kSumKernelsAvx512;

// The fastest that this machine runs.
const SumKernels& FastestSumKernels();

// For any dtype that collectives add: f32, bf16, f64.
void Sum(DType dtype, const std::byte* const* terms, int num_terms, const std::byte* acc, std::byte* out, int64_t n);

}  // namespace temper
