#include "base/machine_memory.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "base/cgroups.h"
#include "base/kernel_text.h"

namespace temper {
namespace {

// Of lines "key number"; `key` ends in what stands between them.
std::optional<int64_t> NumberAfter(std::string_view text, std::string_view key) {
  for (const std::string_view line : Split(text, '\n')) {
    if (line.starts_with(key)) return NumberIn(line.substr(key.size()));
  }
  return std::nullopt;
}

// How a version of cgroups tells what a group may use, uses, and could give back.
struct CgroupVersion {
  std::vector<std::string> limits;
  std::string usage;
  std::vector<std::string_view> reclaimable;  // lines of memory.stat
};

const CgroupVersion& Version1() {
  static const CgroupVersion version = {
      {"memory.limit_in_bytes"}, "memory.usage_in_bytes", {"total_active_file ", "total_inactive_file "}};
  return version;
}
// Above memory.high nothing is refused, but everything is slowed down until it is below.
const CgroupVersion& Version2() {
  static const CgroupVersion version = {
      {"memory.max", "memory.high"}, "memory.current", {"active_file ", "inactive_file ", "slab_reclaimable "}};
  return version;
}

// What the group itself still allows; nullopt: it bounds nothing.
std::optional<int64_t> LeftIn(const Cgroup& group, Env& env) {
  const CgroupVersion& version = group.version_2 ? Version2() : Version1();
  std::optional<int64_t> limit;
  for (const std::string& file : version.limits) {
    const auto number = NumberIn(group.Read(env, file));  // "max" is none
    if (number && (!limit || *number < *limit)) limit = number;
  }
  const auto used = NumberIn(group.Read(env, version.usage));
  if (!limit || !used) return std::nullopt;
  const std::string stat = group.Read(env, "memory.stat");
  int64_t reclaimable = 0;
  for (const std::string_view key : version.reclaimable) reclaimable += NumberAfter(stat, key).value_or(0);
  return std::max<int64_t>(*limit - std::max<int64_t>(*used - reclaimable, 0), 0);
}

}  // namespace

std::string AvailableMemory::ToString() const {
  const std::string text = temper::ToString(bytes);
  return limit.empty() ? text : fmt::format("{} (the limit of {})", text, limit);
}

AvailableMemory FindAvailableMemory(Env& env, const std::string& root) {
  const auto read = [&](const char* path) { return ReadKernelText(env, root + path); };
  AvailableMemory available{.bytes = {std::numeric_limits<int64_t>::max()}};
  if (const auto kib = NumberAfter(read("/proc/meminfo"), "MemAvailable:")) available.bytes = {*kib << 10};
  for (const Cgroup& group : CgroupsOf(env, root, "memory")) {
    const auto left = LeftIn(group, env);
    if (left && Bytes{*left} < available.bytes) available = {{*left}, "memory cgroup " + group.name};
  }
  // "unlimited" is no number. The first number of statm is the address space in use, in pages.
  const auto addresses = NumberAfter(read("/proc/self/limits"), "Max address space");
  const auto used = NumberIn(read("/proc/self/statm"));
  if (addresses && used) {
    const int64_t left = std::max<int64_t>(*addresses - *used * sysconf(_SC_PAGESIZE), 0);
    if (Bytes{left} < available.bytes) available = {{left}, "ulimit -v"};
  }
  return available;
}

Bytes ResidentMemory() {
  const Result<std::string> status = PosixEnv().ReadGenerated("/proc/self/status");
  return {status.ok() ? NumberAfter(*status, "VmRSS:").value_or(0) << 10 : 0};
}

Bytes PeakResidentMemory() {
  rusage usage;
  return getrusage(RUSAGE_SELF, &usage) == 0 ? Bytes{static_cast<int64_t>(usage.ru_maxrss) << 10} : Bytes{};
}

}  // namespace temper
