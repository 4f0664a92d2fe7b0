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
// of a row. `name` is the result's.
ValueId BuildNorm(ForwardBuilder& f, const NormSpec& spec, ValueId x, const std::string& module, Dim over,
                  const std::string& name, bool grouped = false);

// A layer norm without shift over each of `groups` groups of a row, every one with scales of its own: row i of
// "<module>.weight" [groups, over], or, if `norms` is not empty, "<module>.<norms>.<i>.weight" [over].
ValueId BuildNormOfEach(ForwardBuilder& f, double eps, ValueId x, const std::string& module, const std::string& norms,
                        Dim groups, Dim over, const std::string& name);

}  // namespace temper
