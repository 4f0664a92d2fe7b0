// Where a table of rotary embeddings has its cosines and sines, their scale and their frequencies: what kernels and
// their twin must agree on.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "graph/attributes.h"

namespace temper {

// Copying it allocates nothing.
struct RopeTableShape {
  int64_t half;  // pairs
  bool interleaved, sines_first;
  double scale, beta;
  int64_t original, shift;

  explicit RopeTableShape(const Attributes& a)
      : half(static_cast<int64_t>(a.Doubles("inv_freq").size())),
        interleaved(a.Flag("interleaved")),
        sines_first(a.Flag("sines_first")),
        scale(a.DoubleOr("scale", 1)),
        beta(a.DoubleOr("beta", 0)),
        original(a.IntOr("original", 0)),
        shift(a.IntOr("shift", 0)) {}

  // Where the cosine of pair `e` stands in a row, and its sine.
  int64_t CosineAt(int64_t e) const { return interleaved ? 2 * e : sines_first ? half + e : e; }
  int64_t SineAt(int64_t e) const { return interleaved ? 2 * e + 1 : sines_first ? e : half + e; }
  // Of all sines and cosines of a row.
  double ScaleAt(int32_t position) const {
    if (beta == 0 || original == 0) return scale;
    return scale * (1 + beta * std::log1p(std::floor(static_cast<double>(position) / static_cast<double>(original))));
  }
};

// The frequencies of a table's pairs. A table by document has others for documents of more than `near` tokens: those of
// `long_inv_freq` (longrope), or those that follow from a `theta` that grows with the document's length (dynamic).
// Making and copying it allocates nothing.
struct RopeFrequencies {
  Attributes attributes;  // has the lists; copies share them
  std::span<const double> inv_freq, long_inv_freq;
  bool by_document;
  int64_t near;
  double theta, factor;

  explicit RopeFrequencies(const Attributes& a)
      : attributes(a),
        inv_freq(attributes.Doubles("inv_freq")),
        by_document(a.Flag("document_length")),
        near(a.IntOr("near", 0)),
        theta(a.DoubleOr("theta", 0)),
        factor(a.DoubleOr("factor", 0)) {
    if (attributes.Has("long_inv_freq")) long_inv_freq = attributes.Doubles("long_inv_freq");
  }

  // The frequencies of one document: listed, or from its theta.
  struct OfDocument {
    const double* listed;
    double theta;
    int64_t half;
    // Rounded to f32, as transformers has them, and as those are that are listed.
    double operator[](int64_t e) const {
      if (listed != nullptr) return listed[e];
      return static_cast<double>(
          static_cast<float>(std::pow(theta, -static_cast<double>(e) / static_cast<double>(half))));
    }
  };
  // Refers to this. `length`: any number where the table is not by document.
  OfDocument Of(int64_t length) const {
    const auto half = static_cast<int64_t>(inv_freq.size());
    if (!by_document || length <= near) return {inv_freq.data(), 0, half};
    if (!long_inv_freq.empty()) return {long_inv_freq.data(), 0, half};
    return {nullptr, theta * std::pow(Growth(length), static_cast<double>(half) / static_cast<double>(half - 1)), half};
  }
  // transformers, _compute_dynamic_ntk_parameters.
  double Growth(int64_t length) const {
    return factor * static_cast<double>(length) / static_cast<double>(near) - (factor - 1);
  }
};

}  // namespace temper
