#include "compile/decisions.h"

#include <fmt/core.h>

namespace temper {

std::string DescribeDecisions(const std::vector<Decision>& decisions) {
  std::string text;
  for (const Decision& d : decisions) {
    text += fmt::format("decision    {}: {}, not {}: {}; {} sent per step ({:.3g} ms), else {} ({:.3g} ms)\n", d.what,
                        d.chosen, d.rejected, d.reason, ToString(d.sent), d.time.v * 1e3, ToString(d.sent_otherwise),
                        d.time_otherwise.v * 1e3);
  }
  return text;
}

double LinkRate(AxisSet axes) {
  const AxisSet across = {Axis::kPp, Axis::kDp, Axis::kFsdp};
  return (axes & across).empty() ? 50e9 : 12.5e9;
}

Seconds LinkTime(Bytes sent, AxisSet axes) {
  return {static_cast<double>(sent.v) / LinkRate(axes)};
}

}  // namespace temper
