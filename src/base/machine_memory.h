// What memory this machine still has for this process, and how much the process has.
#pragma once

#include <string>
#include <utility>

#include "base/env.h"
#include "base/units.h"

namespace temper {

struct AvailableMemory {
  Bytes bytes;
  std::string cgroup;  // whose limit that is; empty: the machine itself has no more

  std::string ToString() const;  // "1.2 GiB", "1.2 GiB (the limit of memory cgroup /jobs/7)"
};

// What could be allocated without swapping: MemAvailable, and the same of the process's memory cgroup and all above it
// (versions 1 and 2): the limit less what is in use there, but for pages of files, which the kernel gives back.
// `root` stands before the paths of /proc and of what is mounted: for tests. What cannot be read does not bound.
AvailableMemory FindAvailableMemory(Env& env = PosixEnv(), const std::string& root = "");

// What one of several processes that take alike has of it.
inline AvailableMemory ShareOf(AvailableMemory all, int processes) {
  return {all.bytes / processes, std::move(all.cgroup)};
}

// Resident memory of this process now, and its highest value so far.
Bytes ResidentMemory();
Bytes PeakResidentMemory();

}  // namespace temper
