// Which of a library's algorithms computes a product: the one that was kept, or the fastest here.
#pragma once

#include <string>
#include <vector>

#include "backend/gpu/products/product_timer.h"

namespace temper::gpu {

// A product for which a library offers algorithms.
class ProductWithAlgorithms : public MatrixProduct {
 public:
  virtual const ProductShape& shape() const = 0;
  // Their bytes in hexadecimal, the library's first choice first; at least one.
  virtual const std::vector<std::string>& offered() const = 0;
  // Runs use `offered()[algorithm]` from now on; before the first call they use offered()[0].
  virtual void Use(size_t algorithm) = 0;
};

// For each product: the algorithm in `algorithms`, if it is offered; else the fastest of those offered, which is added
// there. Products of one name have one algorithm. To replace an algorithm that the library ranks higher, one must be
// 2 % faster. One that cannot be run is not chosen; if none can be run, or the timer has no room for the operands, the
// first is kept.
Status ChooseAlgorithms(const std::vector<ProductWithAlgorithms*>& products, ProductTimer& timer,
                        ProductAlgorithms* algorithms, ProductTiming* done);

}  // namespace temper::gpu
