// How many processors this process may keep busy: those that it may run on, as far as the quotas of its control groups
// (cpu.max, cpu.cfs_quota_us; `docker run --cpus`) give it their time. With more threads than that, all of them are
// stopped for most of each tenth of a second.
#pragma once

#include <string>

#include "base/env.h"

namespace temper {

struct Processors {
  int number = 1;
  int allowed = 1;    // that it may run on (affinity)
  std::string limit;  // what makes `number` less: "cgroup /docker/7 gives the time of 3.5"; empty: nothing

  std::string ToString() const;  // "64", "4 of 64 (cgroup /docker/7 gives the time of 3.5)"
};

// `allowed`: by affinity. The least quota of the process's cgroup and of all above it counts, rounded up. `root`: as
// CgroupsOf's. An unreadable quota does not bound.
Processors FindProcessors(int allowed, Env& env = PosixEnv(), const std::string& root = "");
// Of this process (AvailableProcessors, base/team.h). The quotas are read once.
const Processors& ProcessorsAtStart();

// Those that this process may run on now, whatever its quota.
int AffineProcessors();

}  // namespace temper
