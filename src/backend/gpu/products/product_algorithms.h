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
  // Runs with that one from now on. At first with the first.
  virtual void Use(size_t algorithm) = 0;
};

// For each product: the algorithm in `algorithms`, if it is offered; else the fastest of those offered, which is added
// there. Products of one name have one algorithm. What differs by less than noise is a tie, which the library's order
// decides. One that cannot be run is not chosen; products whose operands the timer has no room for keep the first.
Status ChooseAlgorithms(const std::vector<ProductWithAlgorithms*>& products, ProductTimer& timer,
                        ProductAlgorithms* algorithms, ProductTiming* done);

}  // namespace temper::gpu
