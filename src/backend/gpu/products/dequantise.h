// The numbers of a quantised matrix, for products that read bf16. Floor: the rows are read and their numbers written
// once.
#pragma once

#include "backend/gpu/gpu_api.h"
#include "tensor/shape.h"

namespace temper::gpu {

// Writes bf16 [rows, columns], with the bits of ElementFormat::Number. Whatever the shape; 16 bytes at a time where
// columns are a multiple of 8. REQUIRES: `matrix` is quantised; `values` is aligned to 16.
Status Dequantise(const TensorType& matrix, const std::byte* rows, std::byte* values, gpuStream_t stream);

}  // namespace temper::gpu
