// Which processes hold a GPU's memory beside this one, according to NVIDIA's management library (NVML). It is declared
// here as far as it is used, loaded on demand, and optional (on AMD's cards, say).
#pragma once

#include <string>
#include <vector>

#include "base/units.h"

namespace temper::gpu {

struct MemoryHolder {
  int pid = 0;
  std::string name;  // of its program; "" if it is not visible
  Bytes memory;
};

// Other processes with memory of the GPU at `bus` ("0000:19:00.0"), the largest first. Empty if unknown: no library, or
// process ids of another namespace, as in a container. REQUIRES: this process has a context there.
std::vector<MemoryHolder> HoldersOfMemory(const std::string& bus, const char* library = "libnvidia-ml.so.1");

// "python3 (process 4711) holds 30.00 GiB, and 2 more 1.00 GiB"; "" for none.
std::string DescribeHolders(const std::vector<MemoryHolder>& holders);

}  // namespace temper::gpu
