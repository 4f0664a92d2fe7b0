// Matrix products by the vendor's library, loaded when it is needed: the program starts without it. CUDA: cuBLASLt
// (blas_lt.cc). HIP: hipBLASLt, or our own kernels (hip_products.cc).
#pragma once

#include <memory>
#include <span>
#include <string>

#include "backend/gpu/gpu_api.h"
#include "backend/gpu/products/matrix_product.h"

namespace temper::gpu {

// "cuBLASLt 13.1.0". Errors: the library is missing or of another major version, with the remedy.
Result<std::string> ProductsVersion();

// Products on `stream`, with `scratch` of the device's memory between them; both must outlive them. Sums are f32 (never
// TF32), split only where the parts are added in a fixed order: the same bits, run after run.
Result<std::unique_ptr<MatrixProducts>> MakeProducts(gpuStream_t stream, std::span<std::byte> scratch);

}  // namespace temper::gpu
