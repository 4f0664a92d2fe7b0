#include "compile/mesh/decisions.h"

#include <fmt/core.h>

#include "compile/rates/rank_links.h"

namespace temper {

namespace {

// "7.11 GiB (153 ms at 50 GB/s)"
std::string Describe(Bytes sent, Seconds time) {
  if (sent == Bytes{}) return ToString(sent);
  return fmt::format("{} ({:.3g} ms at {:.3g} GB/s)", ToString(sent), time.v * 1e3,
                     static_cast<double>(sent.v) / time.v / 1e9);
}

}  // namespace

std::string DescribeDecisions(const std::vector<Decision>& decisions) {
  std::string text;
  for (const Decision& d : decisions) {
    text += fmt::format("decision    {}: {}, not {}: {}; sends {} per step instead of {}\n", d.what, d.chosen,
                        d.rejected, d.reason, Describe(d.sent, d.time), Describe(d.sent_otherwise, d.time_otherwise));
  }
  return text;
}

double LinkRate(AxisSet axes) {
  const AxisSet across = {Axis::kPp, Axis::kDp, Axis::kFsdp};
  const RankLinks links = RankLinks::Typical(1);
  return ((axes & across).empty() ? links.inside : links.between).bytes_per_second;
}

Seconds LinkTime(Bytes sent, AxisSet axes) {
  return {static_cast<double>(sent.v) / LinkRate(axes)};
}

}  // namespace temper
