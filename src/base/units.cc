#include "base/units.h"

#include <fmt/core.h>

namespace temper {

std::string ToString(Bytes b) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double v = static_cast<double>(b.v);
  int u = 0;
  while ((v >= 1024 || v <= -1024) && u < 4) {
    v /= 1024;
    ++u;
  }
  return u == 0 ? fmt::format("{} B", b.v) : fmt::format("{:.2f} {}", v, units[u]);
}

std::string ToString(Flops f) {
  const char* const units[] = {"", "K", "M", "G", "T", "P", "E"};
  double v = f.v;
  int u = 0;
  while (v >= 1000 && u < 6) {
    v /= 1000;
    ++u;
  }
  return fmt::format("{:.2f} {}FLOP", v, units[u]);
}

std::string ToString(Seconds s) {
  if (s.v < 60) return fmt::format("{:.3g} s", s.v);
  const int64_t total = static_cast<int64_t>(s.v + 0.5);
  if (total < 3600) return fmt::format("{} m {:02} s", total / 60, total % 60);
  return fmt::format("{} h {:02} m", total / 3600, total % 3600 / 60);
}

}  // namespace temper
