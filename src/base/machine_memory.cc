#include "base/machine_memory.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

namespace temper {
namespace {

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::optional<int64_t> NumberIn(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

// Of lines "key number"; `key` ends in what stands between them.
std::optional<int64_t> NumberAfter(std::string_view text, std::string_view key) {
  for (const std::string_view line : Split(text, '\n')) {
    if (line.starts_with(key)) return NumberIn(line.substr(key.size()));
  }
  return std::nullopt;
}

bool HasWord(std::string_view list, std::string_view word) {
  const auto words = Split(list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
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

// A mounted hierarchy and where in it this process is: "" at its root.
struct Hierarchy {
  const CgroupVersion* version;
  std::string mounted, group;
};

class CgroupReader {
 public:
  CgroupReader(Env& env, const std::string& root) : env_(env), root_(root) {}

  std::string Read(const std::string& path) const {
    const Result<std::string> text = env_.ReadGenerated(root_ + path);
    return text.ok() ? *text : "";
  }

  std::vector<Hierarchy> Hierarchies() const {
    const std::string groups = Read("/proc/self/cgroup"), mounts = Read("/proc/self/mountinfo");
    std::vector<Hierarchy> found;
    for (const std::string_view line : Split(mounts, '\n')) {
      const auto fields = Split(line, ' ');
      const auto dash = std::find(fields.begin(), fields.end(), "-");
      if (fields.size() < 5 || fields.end() - dash < 4) continue;
      const bool second = dash[1] == "cgroup2";
      if (!second && !(dash[1] == "cgroup" && HasWord(dash[3], "memory"))) continue;
      const auto path = PathOf(groups, second);
      if (!path) continue;
      found.push_back({second ? &Version2() : &Version1(), std::string(fields[4]), Below(fields[3], *path)});
    }
    return found;
  }

  // What the group itself still allows; nullopt: it bounds nothing.
  std::optional<int64_t> LeftIn(const CgroupVersion& version, const std::string& folder) const {
    std::optional<int64_t> limit;
    for (const std::string& file : version.limits) {
      const auto number = NumberIn(Read(folder + "/" + file));  // "max" is none
      if (number && (!limit || *number < *limit)) limit = number;
    }
    const auto used = NumberIn(Read(folder + "/" + version.usage));
    if (!limit || !used) return std::nullopt;
    const std::string stat = Read(folder + "/memory.stat");
    int64_t reclaimable = 0;
    for (const std::string_view key : version.reclaimable) reclaimable += NumberAfter(stat, key).value_or(0);
    return std::max<int64_t>(*limit - std::max<int64_t>(*used - reclaimable, 0), 0);
  }

 private:
  // Of lines "4:memory:/jobs/7", of version 2 "0::/jobs/7".
  static std::optional<std::string_view> PathOf(std::string_view groups, bool second) {
    for (const std::string_view line : Split(groups, '\n')) {
      const size_t first = line.find(':'), next = line.find(':', first + 1);
      if (next == std::string_view::npos) continue;
      const std::string_view controllers = line.substr(first + 1, next - first - 1);
      if (second ? controllers.empty() : HasWord(controllers, "memory")) return line.substr(next + 1);
    }
    return std::nullopt;
  }

  // Of `path` what lies below `mounted`, the part of the hierarchy that can be seen; a container may see its own part
  // only, and be told of a path outside of that.
  static std::string Below(std::string_view mounted, std::string_view path) {
    if (path.find("..") != std::string_view::npos) return "";
    if (mounted == "/") return path == "/" ? "" : std::string(path);
    if (!path.starts_with(mounted)) return "";
    path.remove_prefix(mounted.size());
    return path.starts_with('/') ? std::string(path) : "";
  }

  Env& env_;
  const std::string root_;
};

}  // namespace

std::string AvailableMemory::ToString() const {
  const std::string text = temper::ToString(bytes);
  return limit.empty() ? text : fmt::format("{} (the limit of {})", text, limit);
}

AvailableMemory FindAvailableMemory(Env& env, const std::string& root) {
  const CgroupReader reader(env, root);
  AvailableMemory available{.bytes = {std::numeric_limits<int64_t>::max()}};
  if (const auto kib = NumberAfter(reader.Read("/proc/meminfo"), "MemAvailable:")) available.bytes = {*kib << 10};
  for (const auto& [version, mounted, own] : reader.Hierarchies()) {
    for (std::string group = own;; group.resize(group.rfind('/'))) {
      const auto left = reader.LeftIn(*version, mounted + group);
      if (left && Bytes{*left} < available.bytes)
        available = {{*left}, "memory cgroup " + (group.empty() ? "/" : group)};
      if (group.empty()) break;
    }
  }
  // "unlimited" is no number. The first number of statm is the address space in use, in pages.
  const auto addresses = NumberAfter(reader.Read("/proc/self/limits"), "Max address space");
  const auto used = NumberIn(reader.Read("/proc/self/statm"));
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
