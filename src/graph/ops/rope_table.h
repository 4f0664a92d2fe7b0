// Where a table of rotary embeddings has its cosines and sines, and their scale: what kernels and their twin must agree
// on. Copying it allocates nothing.
#pragma once

#include <cmath>
#include <cstdint>

#include "graph/attributes.h"

namespace temper {

struct RopeTableShape {
  int64_t half;  // pairs
  bool interleaved;
  double scale, beta;
  int64_t original;

  explicit RopeTableShape(const Attributes& a)
      : half(static_cast<int64_t>(a.Doubles("inv_freq").size())),
        interleaved(a.Flag("interleaved")),
        scale(a.DoubleOr("scale", 1)),
        beta(a.DoubleOr("beta", 0)),
        original(a.IntOr("original", 0)) {}

  // Where the cosine of pair `e` stands in a row, and its sine behind it.
  int64_t CosineAt(int64_t e) const { return interleaved ? 2 * e : e; }
  int64_t SineAt(int64_t e) const { return interleaved ? 2 * e + 1 : half + e; }
  // Of all sines and cosines of a row.
  double ScaleAt(int32_t position) const {
    if (beta == 0 || original == 0) return scale;
    return scale * (1 + beta * std::log1p(std::floor(static_cast<double>(position) / static_cast<double>(original))));
  }
};

}  // namespace temper
