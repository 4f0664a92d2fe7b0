// Matrix products for tests, by the host, as f32 sums in the order of k: what a vendor's library does on a GPU.
#pragma once

#include "backend/gpu/products/matrix_product.h"

namespace temper::gpu {

// Lives as long as the program.
MatrixProducts& HostProducts();

}  // namespace temper::gpu
