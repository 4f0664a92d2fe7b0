// Norms of rows, as models have them.
#pragma once

#include <cstdint>
#include <string>

#include "model/forward.h"

namespace temper {

// ...PlusOne scale by 1 + w. kLayerNoShift has a weight but no bias; ...Plain have neither.
enum class NormKind : uint8_t { kRms, kRmsPlusOne, kRmsPlain, kLayer, kLayerPlusOne, kLayerNoShift, kLayerPlain };

struct NormSpec {
  NormKind kind = NormKind::kRms;
  double eps = 0;
  friend bool operator==(const NormSpec&, const NormSpec&) = default;
};

// The norm of that module: over rows, of which its scale has the dim `over`, or `grouped`, over every so many elements
// of a row. `name` is the result's. REQUIRES: groups have an RMS norm.
ValueId BuildNorm(ForwardBuilder& f, const NormSpec& spec, ValueId x, const std::string& module, Dim over,
                  const std::string& name, bool grouped = false);

}  // namespace temper
