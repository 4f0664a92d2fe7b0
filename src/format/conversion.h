// Conversion of arrays between the floating storage types, as loading (F16 checkpoint, f32 compute) and exporting (f32
// masters, BF16 file) need it. Rounds once, to nearest even; overflow gives infinity; NaN stays NaN.
// Thread rule: no state; call from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace temper {

// True for f32, bf16, f16 and f64: the types that convert into each other.
bool IsFloating(DType t);

// out[i] = from-to-conversion of in[i]. REQUIRES: both floating; both pointers aligned to their element; no overlap.
void Convert(DType from, const std::byte* in, DType to, std::byte* out, int64_t elements);

// The scalar twin of Convert: one element after another, without vector instructions. The oracle of its test.
void ConvertReference(DType from, const std::byte* in, DType to, std::byte* out, int64_t elements);

}  // namespace temper
