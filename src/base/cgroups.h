// The control groups of this process (versions 1 and 2), which limit what it may use of its machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"

namespace temper {

struct Cgroup {
  bool version_2 = false;
  std::string folder;  // where its files are, for ReadKernelText
  std::string name;    // "/jobs/7"; "/": the root of what can be seen

  // "" if there is no such file, or it cannot be read.
  std::string Read(Env& env, const std::string& file) const;
};

// The process's group in every mounted hierarchy that has `controller` ("memory", "cpu"), each followed by those above
// it: all of them limit the process. `root` is prepended to the paths of /proc and of mounts, for tests.
std::vector<Cgroup> CgroupsOf(Env& env, const std::string& root, std::string_view controller);

}  // namespace temper
