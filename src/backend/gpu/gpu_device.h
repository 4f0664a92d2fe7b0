// The GPUs of this machine, as far as this build can use them. What is missing is an error of one line that says what
// to do about it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/device.h"

namespace temper {

struct GpuFacts {
  std::string name;          // "NVIDIA H200"
  int major = 0, minor = 0;  // compute capability, or the digits of gfx942
  Bytes memory;
  std::string uuid;     // unique among all cards; empty if it is not known
  std::string refused;  // why it cannot be used; empty if it can
};

struct GpuInventory {
  std::string libraries;  // "CUDA runtime 13.0, driver 13.0, cuBLASLt 13.1.0"
  std::vector<GpuFacts> gpus;
};

// For ranks that do not run the same program, before everything else here: a GPU that is opened then loads all kernels,
// ours and those of libraries, which costs some seconds and some hundred MiB of it. Otherwise each is loaded when it is
// first launched, and the driver may first wait for all that is enqueued: two stages of a pipeline would wait for each
// other, one to load a kernel behind what it receives, the other behind what it sends. Values in the environment
// (CUDA_MODULE_LOADING, HIP_ENABLE_DEFERRED_LOADING) win.
void LoadKernelsWhenOpened();

// Errors: a build without this backend, no driver or one too old, no GPU.
Result<GpuInventory> ListGpus();

// Errors: as ListGpus; a GPU that is refused; a library that is missing.
Result<std::unique_ptr<Device>> OpenGpu(int index);

}  // namespace temper
