#include "plan/candidate.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/check.h"
#include "format/json.h"

namespace temper {

bool IsBetter(const Candidate& a, const Candidate& b, SearchGoal goal) {
  const auto rank = [&](const Candidate& c) {
    const bool fewest = goal == SearchGoal::kFewestDevices;
    return std::make_tuple(!c.fits, fewest && c.host.v > 0, fewest ? c.devices : 0, -c.tokens_per_second, c.bytes.v);
  };
  return rank(a) < rank(b);
}

std::string SearchText(const SearchResult& r) {
  std::string text =
      fmt::format("search      {} candidates in {:.2f} s, {} ruled out by bounds; goal: {}\n", r.considered, r.spent.v,
                  r.ruled_out, r.goal == SearchGoal::kThroughput ? "throughput" : "fewest devices");
  if (r.best.empty() || !r.best.front().fits) {
    return text + "  nothing fits; the closest is listed. Try more devices or memory, method lora, or shorter rows\n" +
           (r.best.empty() ? ""
                           : fmt::format("  {}: {} of {}\n", r.best.front().settings, ToString(r.best.front().bytes),
                                         ToString(r.best.front().limit)));
  }
  text += fmt::format("  {:>12} {:>7} {:>11} {:>11}  settings ('~': extrapolated from few blocks)\n", "tokens/s", "MFU",
                      "step", "memory");
  for (const Candidate& c : r.best) {
    text += fmt::format(
        "  {:>12.1f} {:>5.1f} % {:>9.3f} s {:>11}{} {}\n", c.tokens_per_second, 100 * c.mfu, c.step.v,
        ToString(c.bytes), c.compiled ? " " : "~",
        c.host.v > 0 ? fmt::format("{} (and {} of host memory)", c.settings, ToString(c.host)) : c.settings);
  }
  return text;
}

std::string SearchJson(const SearchResult& r) {
  nlohmann::ordered_json json;
  json["goal"] = r.goal == SearchGoal::kThroughput ? "throughput" : "fewest_devices";
  json["considered"] = r.considered;
  json["ruled_out"] = r.ruled_out;
  json["seconds"] = r.spent.v;
  json["best"] = nlohmann::ordered_json::array();
  for (const Candidate& c : r.best) {
    json["best"].push_back({{"settings", c.settings},
                            {"devices", c.devices},
                            {"bytes", c.bytes.v},
                            {"host_bytes", c.host.v},
                            {"limit", c.limit.v},
                            {"fits", c.fits},
                            {"compiled", c.compiled},
                            {"step_seconds", c.step.v},
                            {"tokens_per_second", c.tokens_per_second},
                            {"mfu", c.mfu}});
  }
  return DumpJson(json, 2) + "\n";
}

}  // namespace temper
