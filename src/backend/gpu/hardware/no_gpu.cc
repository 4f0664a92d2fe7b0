// For builds without a GPU's compiler.
#include "backend/gpu/gpu_device.h"

namespace temper {
namespace {

Status NotBuilt() {
  return Unsupported(
      "this build has no GPU backend: build with `cmake --preset cuda` (needs nvcc) or `--preset hip` (needs hipcc)");
}

}  // namespace

void LoadKernelsWhenOpened() {}

Result<GpuInventory> ListGpus() {
  return NotBuilt();
}
Result<std::unique_ptr<Device>> OpenGpu(int) {
  return NotBuilt();
}

}  // namespace temper
