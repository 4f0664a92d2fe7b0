// The GPU of this program: a device whose memory the host cannot touch, with the CPU's kernels. The linker takes these
// functions instead of the GPU backend's.
#include <cstdlib>

#include "../apart_device.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "backend/gpu/gpu_device.h"
#include "base/log.h"

namespace temper {
namespace {

// The machine that the test simulates: APART_GPU is "none", "old", "full", "one",
// "same" (several with one UUID), or unset: several. On each, APART_GPU_FREE
// bytes are free (unset: unlimited), and APART_GPU_HOLDERS hold the rest.
std::string Machine() {
  const char* const value = std::getenv("APART_GPU");
  return value == nullptr ? "" : value;
}

class ApartGpu final : public ApartDevice {
 public:
  // As many threads as the commands use on the host: the same sums.
  static std::unique_ptr<ApartGpu> Make() {
    auto exchange = std::make_unique<ExchangeMaker>();
    auto kernels =
        MakeCpuKernels({.threads = 1, .exchange = [maker = exchange.get()](AxisSet axes) { return (*maker)(axes); }});
    return std::unique_ptr<ApartGpu>(new ApartGpu(std::move(kernels), std::move(exchange)));
  }
  Result<std::span<std::byte>> Allocate(Bytes size) override {
    if (Machine() == "full" || size > free_) {
      return OutOfMemory("the run needs " + ToString(size) + ": another process may hold the rest");
    }
    free_ = free_ - size;
    return ApartDevice::Allocate(size);
  }
  void Release(std::span<std::byte> memory) override {
    free_ += Bytes{static_cast<int64_t>(memory.size())};
    ApartDevice::Release(memory);
  }
  Result<Memory> MeasureMemory() override { return Memory{.total = GiB(80), .free = free_}; }
  std::string MemoryHolders() override {
    const char* const holders = std::getenv("APART_GPU_HOLDERS");
    return holders == nullptr ? "" : holders;
  }
  void Join(Communicator& communicator, DeviceExchanges&, const Mesh& mesh) override {
    *exchange_ = [&communicator, mesh](AxisSet axes) { return communicator.MakeExchange(mesh, axes); };
  }

 private:
  using ExchangeMaker = std::function<Result<std::unique_ptr<Exchange>>(AxisSet)>;
  ApartGpu(std::unique_ptr<KernelTable> kernels, std::unique_ptr<ExchangeMaker> exchange)
      : ApartDevice(*kernels), kernels_(std::move(kernels)), exchange_(std::move(exchange)) {}
  static Bytes FreeAtFirst() {
    const char* const free = std::getenv("APART_GPU_FREE");
    return free == nullptr ? GiB(80) : Bytes{std::atoll(free)};
  }

  const std::unique_ptr<KernelTable> kernels_;
  const std::unique_ptr<ExchangeMaker> exchange_;
  Bytes free_ = FreeAtFirst();
};

}  // namespace

// Tests read it.
void LoadKernelsWhenOpened() {
  LogInfo("kernels are loaded when a GPU is opened");
}

Result<GpuInventory> ListGpus() {
  if (Machine() == "none") return NotFound("no GPU was found (nvidia-smi lists them)");
  GpuFacts facts{.name = "a device apart", .major = 9};
  if (Machine() == "old") facts.refused = "its compute capability is 7.0; bf16 needs 8.0";
  GpuInventory inventory{"apart", std::vector<GpuFacts>(Machine() == "one" || Machine() == "old" ? 1 : 4, facts)};
  for (size_t i = 0; i < inventory.gpus.size(); ++i) {
    inventory.gpus[i].uuid = "apart " + std::to_string(Machine() == "same" ? 0 : i);
  }
  return inventory;
}

Result<std::unique_ptr<Device>> OpenGpu(int) {
  return std::unique_ptr<Device>(ApartGpu::Make());
}

}  // namespace temper
