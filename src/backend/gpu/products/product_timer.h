// The contract between the choice of an algorithm and where it is timed.
#pragma once

#include <functional>

#include "backend/gpu/products/matrix_product.h"

namespace temper::gpu {

class ProductTimer {
 public:
  virtual ~ProductTimer() = default;
  // Operands of random numbers, for what is timed until the next call: zeros would be multiplied faster. `acc` is
  // `out`. kOutOfMemory: it has no room for them.
  virtual Result<ProductOperands> Draw(const ProductShape& shape) = 0;
  // Of one run of what `enqueue` enqueues.
  virtual Result<Seconds> Time(const std::function<Status()>& enqueue) = 0;
};

}  // namespace temper::gpu
