#include "plan/advice.h"

#include <fmt/core.h>

#include <algorithm>

namespace temper {

std::string RemedyText(const std::vector<Remedy>& remedies, const Forecast& before) {
  if (remedies.empty()) return "none of the tried settings lowers it\n";
  size_t width = 0;
  for (const Remedy& r : remedies) width = std::max(width, r.settings.size());
  const bool all_compiled = std::all_of(remedies.begin(), remedies.end(), [](const Remedy& r) { return r.compiled; });
  std::string text = fmt::format("settings that would help, compiled and forecast{}:\n",
                                 all_compiled ? "" : " ('~': extrapolated from few blocks)");
  for (const Remedy& r : remedies) {
    const Bytes saved = before.bytes - r.bytes;
    const std::string host =
        before.host_bytes > before.host_limit ? fmt::format(", {} of host memory", ToString(r.host_bytes)) : "";
    text += fmt::format("  {:<{}}  {:>11}{} ({} {}){}, {:.0f} tokens/s ({:+.0f} %){}{}\n", r.settings, width,
                        ToString(r.bytes), r.compiled ? "" : "~", saved.v >= 0 ? "saves" : "costs",
                        ToString(Bytes{std::abs(saved.v)}), host, r.tokens_per_second,
                        100 * (r.tokens_per_second / before.tokens_per_second - 1),
                        r.price.empty() ? "" : "; " + r.price, r.fits ? ": fits" : "");
  }
  return text;
}

std::string FasterText(const std::vector<Remedy>& faster, const Forecast& before) {
  std::string text = fmt::format("slow        a step takes {}", ToString(before.simulation.step));
  if (faster.empty()) return text + "\n";
  text += "; settings that would be faster, compiled and forecast:\n";
  for (const Remedy& r : faster) {
    text += fmt::format("  {:<18}  {} per step ({:.1f} x as fast), {}; {}\n", r.settings, ToString(r.step),
                        before.simulation.step.v / r.step.v, ToString(r.bytes), r.price);
  }
  return text;
}

}  // namespace temper
