// NamedNumber: a figure that a run reports under a name of its own.
#pragma once

#include <string_view>

namespace temper {

struct NamedNumber {
  std::string_view name;  // REQUIRES: outlives the use
  double value = 0;
};

}  // namespace temper
