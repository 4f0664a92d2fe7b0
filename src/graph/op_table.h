// OpTable: a value for some ops, T() for the others.
#pragma once

#include <array>
#include <initializer_list>

#include "graph/named_ops.h"

namespace temper {

template <class T>
class OpTable {
 public:
  struct Entry {
    Op op;
    T value;
  };
  // A duplicate op does not compile.
  consteval OpTable(std::initializer_list<Entry> entries) {
    std::array<bool, kNumOps> listed{};
    for (const Entry& e : entries) {
      const auto at = static_cast<size_t>(e.op);
      if (listed[at]) throw "an op is listed twice";
      listed[at] = true;
      values_[at] = e.value;
    }
  }

  constexpr const T& operator[](Op op) const { return values_[static_cast<size_t>(op)]; }

 private:
  std::array<T, kNumOps> values_{};
};

}  // namespace temper
