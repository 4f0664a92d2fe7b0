#include "data/sample.h"

namespace temper {

void Sample::Resize(size_t n) {
  tokens.resize(n);
  supervised.resize(n);
  if (!weights.empty()) weights.resize(n, kUnitWeight);
}

}  // namespace temper
