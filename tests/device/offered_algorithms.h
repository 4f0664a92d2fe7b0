// The algorithms that stand-ins for vendors' libraries offer, as tests say in the environment. Variable unset: one for
// each product. k: eight, each with its own order of terms; all but the k-th (from 0) are slow.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "column_major_product.h"

namespace temper {

class OfferedAlgorithms {
 public:
  explicit constexpr OfferedAlgorithms(const char* variable) : variable_(variable) {}
  int Offered(int wanted) const { return std::min(wanted, Fastest() == nullptr ? 1 : 8); }
  bool IsSlow(int algorithm) const { return Fastest() != nullptr && algorithm != std::atoi(Fastest()); }
  static void Compute(int algorithm, const ColumnMajorProduct& product) { product.Compute(1 + algorithm); }

 private:
  const char* Fastest() const { return std::getenv(variable_); }
  const char* const variable_;
};

}  // namespace temper
