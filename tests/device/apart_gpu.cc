// The GPU of this program: a device whose memory the host cannot touch, with the CPU's kernels. The linker takes these
// functions instead of the GPU backend's.
#include <cstdlib>

#include "../apart_device.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "backend/gpu/gpu_device.h"

namespace temper {
namespace {

// What the test wants this machine to have: APART_GPU is "none", "old", "full" or unset.
std::string Machine() {
  const char* const value = std::getenv("APART_GPU");
  return value == nullptr ? "" : value;
}

class ApartGpu final : public Device {
 public:
  // As many threads as the commands compute with on the host: the same sums.
  ApartGpu() : kernels_(MakeCpuKernels({.threads = 1})), apart_(*kernels_) {}
  const std::string& name() const override { return apart_.name(); }
  Result<std::span<std::byte>> Allocate(Bytes size) override {
    if (Machine() == "full")
      return OutOfMemory("the run needs " + ToString(size) + ": another process may hold the rest");
    return apart_.Allocate(size);
  }
  void Release(std::span<std::byte> memory) override { apart_.Release(memory); }
  Stream& stream() override { return apart_.stream(); }
  KernelTable& kernels() override { return apart_.kernels(); }
  Result<std::unique_ptr<Stream>> OpenStream() override { return apart_.OpenStream(); }

 private:
  const std::unique_ptr<KernelTable> kernels_;
  ApartDevice apart_;
};

}  // namespace

Result<GpuInventory> ListGpus() {
  if (Machine() == "none") return NotFound("no GPU was found (nvidia-smi lists them)");
  GpuFacts facts{.name = "a device apart", .major = 9};
  if (Machine() == "old") facts.refused = "its compute capability is 7.0; bf16 needs 8.0";
  return GpuInventory{"apart", {facts}};
}

Result<std::unique_ptr<Device>> OpenGpu(int) {
  return std::unique_ptr<Device>(std::make_unique<ApartGpu>());
}

}  // namespace temper
