// Rotary position embedding (Su et al. 2021) in HF's "rotate_half" layout: dim e of a head is paired with e + E/2.
#include <cmath>

#include "backend/cpu/reference/call.h"

namespace temper::reference {

// table[t] = cos(position * inv_freq) in [0, E/2), sin in [E/2, E).
Status RopeTable(const Call& call) {
  const Operand position_T = call.In(0), table_TE = call.Out(0);
  const std::vector<double>& inv_freq = call.attributes().Doubles("inv_freq");
  const int64_t half = static_cast<int64_t>(inv_freq.size());
  for (int64_t t = 0; t < position_T.elements(); ++t) {
    for (int64_t e = 0; e < half; ++e) {
      const double angle = static_cast<double>(position_T.Int(t)) * inv_freq[e];
      table_TE.Store(t * 2 * half + e, std::cos(angle));
      table_TE.Store(t * 2 * half + half + e, std::sin(angle));
    }
  }
  return OkStatus();
}

// (x0, x1) -> (x0 cos - x1 sin, x1 cos + x0 sin); inverse: by the negative angle, which is the adjoint.
Status Rope(const Call& call) {
  const Operand x = call.In(0), table_TE = call.In(1), y = call.Out(0);
  const int64_t E = call.attributes().Int("head_dim"), heads = x.columns() / E, half = E / 2;
  const double sign = call.attributes().Flag("inverse") ? -1 : 1;
  for (int64_t t = 0; t < x.rows(); ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t e = 0; e < half; ++e) {
        const int64_t i = (t * heads + h) * E + e;
        const double cos = table_TE[t * E + e], sin = sign * table_TE[t * E + half + e];
        const double x0 = x[i], x1 = x[i + half];
        y.Store(i, x0 * cos - x1 * sin);
        y.Store(i + half, x1 * cos + x0 * sin);
      }
    }
  }
  return OkStatus();
}

}  // namespace temper::reference
