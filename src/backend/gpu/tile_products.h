// Matrix products by a kernel of ours, for GPUs whose vendor's library is not there: any shape, f32 sums in order of k,
// no matrix units. Floor: 2 m n k flops; each element is read from memory once per 64 rows of the other operand.
#pragma once

#include "backend/gpu/gpu_api.h"
#include "backend/gpu/matrix_product.h"

namespace temper::gpu {

// On `stream`, which must outlive them.
std::unique_ptr<MatrixProducts> MakeTileProducts(gpuStream_t stream);

}  // namespace temper::gpu
