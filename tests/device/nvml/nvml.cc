// A stand-in for the NVML functions that are used, for tests: one GPU, at 0000:19:00.0, whose processes TEST_NVML lists
// as "4711:1000 4712:-1", with the memory of each.
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

namespace {

constexpr int kSuccess = 0, kNotFound = 6, kInsufficientSize = 7;
int initialized = 0;
int the_gpu = 0;

struct Process {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};

}  // namespace

extern "C" {

int nvmlInit_v2() {
  ++initialized;
  return kSuccess;
}
int nvmlShutdown() {
  --initialized;
  return kSuccess;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device) {
  if (initialized == 0 || std::strcmp(bus, "0000:19:00.0") != 0) return kNotFound;
  *device = &the_gpu;
  return kSuccess;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* processes) {
  if (device != &the_gpu) return kNotFound;
  const char* const given = std::getenv("TEST_NVML");
  std::istringstream all(given == nullptr ? "" : given);
  unsigned n = 0;
  for (std::string each; all >> each; ++n) {
    if (n == *count) return kInsufficientSize;
    const size_t colon = each.find(':');
    processes[n] = {static_cast<unsigned>(std::stoul(each)),
                    static_cast<unsigned long long>(std::stoll(each.substr(colon + 1))), 0, 0};
  }
  *count = n;
  return kSuccess;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void* device, unsigned* count, Process* processes) {
  return nvmlDeviceGetComputeRunningProcesses_v3(device, count, processes);
}

}  // extern "C"
