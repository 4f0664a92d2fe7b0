#include "base/cgroups.h"

#include <algorithm>
#include <optional>

#include "base/kernel_text.h"

namespace temper {
namespace {

// Of lines "4:memory:/jobs/7", of version 2 "0::/jobs/7".
std::optional<std::string_view> PathOf(std::string_view groups, bool version_2, std::string_view controller) {
  for (const std::string_view line : Split(groups, '\n')) {
    const size_t first = line.find(':'), next = line.find(':', first + 1);
    if (next == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, next - first - 1);
    if (version_2 ? controllers.empty() : HasWord(controllers, controller)) return line.substr(next + 1);
  }
  return std::nullopt;
}

// Of `path` what lies below `mounted`, the part of the hierarchy that can be seen; a container may see its own part
// only, and be told of a path outside of that.
std::string Below(std::string_view mounted, std::string_view path) {
  if (path.find("..") != std::string_view::npos) return "";
  if (mounted == "/") return path == "/" ? "" : std::string(path);
  if (!path.starts_with(mounted)) return "";
  path.remove_prefix(mounted.size());
  return path.starts_with('/') ? std::string(path) : "";
}

}  // namespace

std::string Cgroup::Read(Env& env, const std::string& file) const {
  return ReadKernelText(env, folder + "/" + file);
}

std::vector<Cgroup> CgroupsOf(Env& env, const std::string& root, std::string_view controller) {
  const std::string groups = ReadKernelText(env, root + "/proc/self/cgroup");
  const std::string mounts = ReadKernelText(env, root + "/proc/self/mountinfo");
  std::vector<Cgroup> found;
  for (const std::string_view line : Split(mounts, '\n')) {
    const auto fields = Split(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 5 || fields.end() - dash < 4) continue;
    const bool version_2 = dash[1] == "cgroup2";
    if (!version_2 && !(dash[1] == "cgroup" && HasWord(dash[3], controller))) continue;
    const auto path = PathOf(groups, version_2, controller);
    if (!path) continue;
    for (std::string group = Below(fields[3], *path);; group.resize(group.rfind('/'))) {
      found.push_back({version_2, root + std::string(fields[4]) + group, group.empty() ? "/" : group});
      if (group.empty()) break;
    }
  }
  return found;
}

}  // namespace temper
