// Who holds a GPU's memory beside this process, as NVIDIA's management library (NVML) tells: declared here as far as it
// is used, loaded when somebody asks, and done without where it is not there (on AMD's cards, say).
#pragma once

#include <string>
#include <vector>

#include "base/units.h"

namespace temper::gpu {

struct MemoryHolder {
  int pid = 0;
  std::string name;  // of its program; "" where it is not to be seen
  Bytes memory;
};

// Other processes with memory of the GPU at `bus` ("0000:19:00.0"), the largest first. None where nothing can be said:
// no library, or process ids that are not those of here, as in a container. REQUIRES: this process has a context there.
std::vector<MemoryHolder> HoldersOfMemory(const std::string& bus, const char* library = "libnvidia-ml.so.1");

// "python3 (process 4711) holds 30.00 GiB, and 2 more 1.00 GiB"; "" of none.
std::string DescribeHolders(const std::vector<MemoryHolder>& holders);

}  // namespace temper::gpu
