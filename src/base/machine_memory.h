// How much memory this machine still has for this process, and how much the process uses.
#pragma once

#include <string>
#include <utility>

#include "base/env.h"
#include "base/units.h"

namespace temper {

struct AvailableMemory {
  Bytes bytes;
  std::string limit;  // what sets it: "memory cgroup /jobs/7", "ulimit -v"; empty: the machine itself

  std::string ToString() const;  // "1.2 GiB", "1.2 GiB (the limit of memory cgroup /jobs/7)"
};

// What could be allocated without swapping: the least of MemAvailable, what the process's limit on its address space
// (ulimit -v) leaves and, for its memory cgroup and all above it (versions 1 and 2), the limit less what is in use
// there, without pages of files, which the kernel gives back. `root` is prepended to the paths of /proc and of mounts,
// for tests. An unreadable limit does not bound.
AvailableMemory FindAvailableMemory(Env& env = PosixEnv(), const std::string& root = "");

// The share of one of several processes that divide it equally.
inline AvailableMemory ShareOf(AvailableMemory all, int processes) {
  return {all.bytes / processes, std::move(all.limit)};
}

// Resident memory of this process now, and its highest value so far.
Bytes ResidentMemory();
Bytes PeakResidentMemory();

}  // namespace temper
