// How a kernel of `linears` or of its backward may use its workspace: the thin operands side by side, T x (P + Q + R),
// the matrices of the weights' shape one below the other, (P + Q + R) x I, and what one product of these takes.
#pragma once

#include "base/units.h"
#include "tensor/dtype.h"

namespace temper {

struct LinearsScratch {
  // weight_dtype: of the weights, or of their gradients.
  LinearsScratch(int64_t T, int64_t I, int64_t rows, DType dtype, DType weight_dtype, Bytes of_product)
      : weights(AlignUp({T * rows * SizeOf(dtype)}, 64)),
        product(weights + AlignUp({rows * I * SizeOf(weight_dtype)}, 64)),
        bytes(product + of_product) {}
  Bytes weights, product;  // where they begin; the thin operands are first
  Bytes bytes;             // all of it
};

}  // namespace temper
