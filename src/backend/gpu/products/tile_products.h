// Matrix products by our own kernels, for GPUs without the vendor's library: any shape, f32 sums. bf16 goes through
// matrix units if there are any, its terms in an order that is always the same; all others add them up one by one,
// in order of k. Floor: 2 m n k flops; each element is read from memory once per 128 (64) rows of the other
// operand.
#pragma once

#include "backend/gpu/gpu_api.h"
#include "backend/gpu/products/matrix_product.h"

namespace temper::gpu {

// On `stream`, which must outlive them.
std::unique_ptr<MatrixProducts> MakeTileProducts(gpuStream_t stream);

// Of bf16 on matrix units (tile_products_matrix.cu); nullptr for another shape, or where there are none.
std::unique_ptr<MatrixProduct> MakeMatrixTileProduct(const ProductShape& shape, gpuStream_t stream);

}  // namespace temper::gpu
