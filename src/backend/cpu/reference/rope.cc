// Rotary position embedding (Su et al. 2021) in HF's "rotate_half" layout: dim e of a head is paired with e + E/2.
#include <cmath>

#include "backend/cpu/reference/call.h"
#include "graph/ops/rope_table.h"

namespace temper::reference {

// table[t] = scale * cos(position * inv_freq) in [0, R/2), scale * sin in [R/2, R), or the two in turn.
Status RopeTable(const Call& call) {
  const Operand position_T = call.In(0), table_TR = call.Out(0);
  const RopeTableShape shape(call.attributes());
  const RopeFrequencies frequencies(call.attributes());
  for (int64_t t = 0; t < position_T.elements(); ++t) {
    const auto position = static_cast<int32_t>(position_T.Int(t));
    const double scale = shape.ScaleAt(position);
    const RopeFrequencies::OfDocument inv_freq = frequencies.Of(frequencies.by_document ? call.In(1).Int(t) : 0);
    for (int64_t e = 0; e < shape.half; ++e) {
      const double angle = static_cast<double>(position + shape.shift) * inv_freq[e];
      const int64_t row = t * 2 * shape.half;
      table_TR.Store(row + shape.CosineAt(e), scale * std::cos(angle));
      table_TR.Store(row + shape.SineAt(e), scale * std::sin(angle));
    }
  }
  return OkStatus();
}

// (x0, x1) -> (x0 cos - x1 sin, x1 cos + x0 sin); inverse: by the negative angle, which is the adjoint.
Status Rope(const Call& call) {
  const Operand x = call.In(0), table_TR = call.In(1), y = call.Out(0);
  const int64_t E = call.attributes().Int("head_dim"), R = table_TR.columns(), heads = x.columns() / E, half = R / 2;
  const bool interleaved = call.attributes().Flag("interleaved");
  const int64_t from = call.attributes().IntOr("first", 0);  // the element of a head that the table begins with
  const double sign = call.attributes().Flag("inverse") ? -1 : 1;
  for (int64_t t = 0; t < x.rows(); ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t head = (t * heads + h) * E;
      for (int64_t e = 0; e < half; ++e) {
        const int64_t first = interleaved ? 2 * e : e, second = interleaved ? 2 * e + 1 : e + half;
        const double cos = table_TR[t * R + first], sin = sign * table_TR[t * R + second];
        const double x0 = x[head + from + first], x1 = x[head + from + second];
        y.Store(head + from + first, x0 * cos - x1 * sin);
        y.Store(head + from + second, x1 * cos + x0 * sin);
      }
      for (int64_t e = 0; e < E; ++e) {
        if (e < from || e >= from + R) y.Store(head + e, x[head + e]);
      }
    }
  }
  return OkStatus();
}

}  // namespace temper::reference
