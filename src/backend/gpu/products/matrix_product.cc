#include "backend/gpu/products/matrix_product.h"

#include <fmt/core.h>

namespace temper::gpu {

std::string NameOf(const ProductShape& shape) {
  return fmt::format("[{}, {}] x [{}, {}] of {} into {}, a by {}, b by {}{}{}", shape.m, shape.k, shape.n, shape.k,
                     ToString(shape.dtype), ToString(shape.out_dtype), shape.a_k_contiguous ? "rows" : "columns",
                     shape.b_k_contiguous ? "rows" : "columns", shape.bias ? ", bias" : "", shape.acc ? ", acc" : "");
}

}  // namespace temper::gpu
