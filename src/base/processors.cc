#include "base/processors.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <thread>

#include "base/cgroups.h"
#include "base/kernel_text.h"

namespace temper {
namespace {

// Microseconds of processors per period, and the period. Version 2: "350000 100000", "max 100000".
struct Quota {
  std::optional<int64_t> time, period;
};
Quota QuotaOf(const Cgroup& group, Env& env) {
  if (!group.version_2) {
    return {NumberIn(group.Read(env, "cpu.cfs_quota_us")), NumberIn(group.Read(env, "cpu.cfs_period_us"))};
  }
  const std::string text = group.Read(env, "cpu.max");
  const auto words = Split(text, ' ');
  return words.size() < 2 ? Quota() : Quota{NumberIn(words[0]), NumberIn(words[1])};
}

}  // namespace

std::string Processors::ToString() const {
  return limit.empty() ? fmt::format("{}", number) : fmt::format("{} of {} ({})", number, allowed, limit);
}

Processors FindProcessors(int allowed, Env& env, const std::string& root) {
  Processors found{.number = allowed, .allowed = allowed};
  double least = allowed;
  for (const Cgroup& group : CgroupsOf(env, root, "cpu")) {
    const auto [time, period] = QuotaOf(group, env);
    if (!time || !period || *time <= 0 || *period <= 0) continue;  // -1: none
    const double processors = static_cast<double>(*time) / static_cast<double>(*period);
    if (processors >= least) continue;
    least = processors;
    found.number = static_cast<int>((*time + *period - 1) / *period);
    found.limit = fmt::format("cgroup {} gives the time of {:.4g}", group.name, processors);
  }
  if (found.number >= allowed) found = {.number = allowed, .allowed = allowed};
  return found;
}

const Processors& ProcessorsAtStart() {
  static const Processors processors = FindProcessors(AffineProcessors());
  return processors;
}

int AffineProcessors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace temper
