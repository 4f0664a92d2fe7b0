#include "backend/gpu/hardware/memory_holders.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>

#include "device/vendor_library.h"

namespace temper::gpu {
namespace {

constexpr int kSuccess = 0;
constexpr unsigned kMostProcesses = 64;
constexpr uint64_t kNotAvailable = ~uint64_t{0};

using NvmlDevice = void*;
struct NvmlProcess {
  unsigned pid;
  unsigned long long memory;  // bytes, or kNotAvailable
  unsigned gpu_instance, compute_instance;
};
using ListProcesses = int (*)(NvmlDevice device, unsigned* count, NvmlProcess* processes);

struct Nvml {
  int (*init)();
  int (*shutdown)();
  int (*find)(const char* bus, NvmlDevice* device);
  ListProcesses computing, drawing;
};

bool LoadNvml(const char* name, Nvml* api) {
  auto library = VendorLibrary::Open(name);
  if (!library.ok()) return false;
  library->Find("nvmlInit_v2", &api->init);
  library->Find("nvmlShutdown", &api->shutdown);
  library->Find("nvmlDeviceGetHandleByPciBusId_v2", &api->find);
  library->Find("nvmlDeviceGetComputeRunningProcesses_v3", &api->computing);
  library->Find("nvmlDeviceGetGraphicsRunningProcesses_v3", &api->drawing);
  return library->missing().empty();
}

std::string NameOfProcess(unsigned pid) {
  std::string name;
  std::getline(std::ifstream(fmt::format("/proc/{}/comm", pid)), name);
  return name;
}

}  // namespace

std::vector<MemoryHolder> HoldersOfMemory(const std::string& bus, const char* library) {
  Nvml api = {};
  if (!LoadNvml(library, &api) || api.init() != kSuccess) return {};
  std::vector<MemoryHolder> holders;
  bool is_here = false;
  NvmlDevice device = nullptr;
  if (api.find(bus.c_str(), &device) == kSuccess) {
    for (const ListProcesses list : {api.computing, api.drawing}) {
      std::array<NvmlProcess, kMostProcesses> processes = {};
      unsigned count = kMostProcesses;
      if (list(device, &count, processes.data()) != kSuccess) continue;
      for (unsigned i = 0; i < std::min(count, kMostProcesses); ++i) {
        const NvmlProcess& p = processes[i];
        const int pid = static_cast<int>(p.pid);
        is_here = is_here || pid == getpid();
        const bool is_known = std::any_of(holders.begin(), holders.end(), [&](const auto& h) { return h.pid == pid; });
        if (pid == getpid() || p.memory == kNotAvailable || is_known) continue;
        holders.push_back({pid, NameOfProcess(p.pid), {static_cast<int64_t>(p.memory)}});
      }
    }
  }
  (void)api.shutdown();
  if (!is_here) return {};
  std::sort(holders.begin(), holders.end(),
            [](const auto& a, const auto& b) { return a.memory != b.memory ? a.memory > b.memory : a.pid < b.pid; });
  return holders;
}

std::string DescribeHolders(const std::vector<MemoryHolder>& holders) {
  if (holders.empty()) return "";
  const MemoryHolder& most = holders[0];
  const std::string process = fmt::format("process {}", most.pid);
  std::string text = fmt::format(
      "{} holds {}", most.name.empty() ? process : fmt::format("{} ({})", most.name, process), ToString(most.memory));
  if (holders.size() == 1) return text;
  Bytes rest{};
  for (size_t i = 1; i < holders.size(); ++i) rest += holders[i].memory;
  return text + fmt::format(", and {} more {}", holders.size() - 1, ToString(rest));
}

}  // namespace temper::gpu
