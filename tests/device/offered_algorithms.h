// The algorithms that stand-ins for vendors' libraries offer, as tests say in the environment: NAME_FASTEST unset: one
// for each product. NAME_FASTEST=k: eight, each with its own order of terms, of which the k-th (from 0) is the fastest.
#pragma once

#include <chrono>
#include <cstdlib>
#include <thread>

#include "column_major_product.h"

namespace temper {

class OfferedAlgorithms {
 public:
  explicit constexpr OfferedAlgorithms(const char* variable) : variable_(variable) {}
  int Offered(int wanted) const { return std::min(wanted, Fastest() == nullptr ? 1 : 8); }
  void Compute(int algorithm, const ColumnMajorProduct& product) const {
    // More than a busy machine's clocks err by.
    constexpr std::chrono::milliseconds kSlow(3);
    const char* const fastest = Fastest();
    if (fastest != nullptr && algorithm != std::atoi(fastest)) std::this_thread::sleep_for(kSlow);
    product.Compute(1 + algorithm);
  }

 private:
  const char* Fastest() const { return std::getenv(variable_); }
  const char* const variable_;
};

}  // namespace temper
