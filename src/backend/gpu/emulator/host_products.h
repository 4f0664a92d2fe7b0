// Matrix products for tests, by the host, as f32 sums in the order of k, in place of a vendor's library.
#pragma once

#include "backend/gpu/products/matrix_product.h"

namespace temper::gpu {

// Lives as long as the program.
MatrixProducts& HostProducts();

}  // namespace temper::gpu
