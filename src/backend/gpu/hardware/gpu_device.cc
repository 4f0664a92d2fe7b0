#include "backend/gpu/gpu_device.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/gpu/gpu_api.h"
#include "backend/gpu/gpu_inventory.h"
#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/hardware/gpu_stream.h"
#include "backend/gpu/hardware/vendor_products.h"

namespace temper {
namespace {

using namespace gpu;  // the names of gpu_api.h

DriverReport::Card CardAt(int index, const gpuDeviceProp& properties) {
  DriverReport::Card card{.name = properties.name, .major = properties.major, .minor = properties.minor};
#if defined(__HIP__) || defined(__HIPCC__)
  // "gfx90a:sramecc+:xnack-": the last two digits are hexadecimal.
  const std::string arch = std::string(properties.gcnArchName).substr(0, std::string(properties.gcnArchName).find(':'));
  if (arch.starts_with("gfx") && arch.size() > 5) {
    card.major = std::atoi(arch.substr(3, arch.size() - 5).c_str());
    card.minor = static_cast<int>(std::strtol(arch.substr(arch.size() - 2).c_str(), nullptr, 16));
  }
#endif
  card.memory = {static_cast<int64_t>(properties.totalGlobalMem)};
  size_t free = 0, total = 0;
  if (gpuSetDevice(index) == gpuSuccess && gpuMemGetInfo(&free, &total) == gpuSuccess) {
    card.free = {static_cast<int64_t>(free)};
  }
  return card;
}

DriverReport AskDriver() {
  DriverReport report;
#if defined(__HIP__) || defined(__HIPCC__)
  report.amd = true;
#endif
  (void)gpuDriverGetVersion(&report.driver);  // 0 where there is none
  (void)gpuRuntimeGetVersion(&report.runtime);
  int count = 0;
  const gpuError_t error = gpuGetDeviceCount(&count);
  if (error == gpuErrorInsufficientDriver) {
    report.state = report.driver == 0 ? DriverState::kMissing : DriverState::kTooOld;
  } else if (error != gpuSuccess && error != gpuErrorNoDevice) {
    report.state = DriverState::kFailed;
    report.failure = StatusOfCall(error, "counting devices").message();
  }
  if (error != gpuSuccess) return report;
  report.products = ProductsVersion();
  int selected = 0;  // asking for free memory selects the card that is asked
  (void)gpuGetDevice(&selected);
  for (int i = 0; i < count; ++i) {
    gpuDeviceProp properties;
    if (gpuGetDeviceProperties(&properties, i) == gpuSuccess) report.cards.push_back(CardAt(i, properties));
  }
  (void)gpuSetDevice(selected);
  return report;
}

class GpuDevice final : public Device, private KernelTable {
 public:
  GpuDevice(int index, const GpuFacts& facts) : index_(index), name_(facts.name) {}
  ~GpuDevice() override {
    stream_.reset();  // after what is under way
    products_.reset();
    for (void* memory : reserved_) (void)gpuFree(memory);
  }

  Status Open() {
    TEMPER_ASSIGN_OR_RETURN(stream_, GpuStream::Open(index_, /*faults=*/true));
    TEMPER_ASSIGN_OR_RETURN(const std::span<std::byte> scratch, Allocate(kProductScratch));
    TEMPER_ASSIGN_OR_RETURN(products_, MakeProducts(stream_->handle(), scratch));
    return OkStatus();
  }

  const std::string& name() const override { return name_; }
  Stream& stream() override { return *stream_; }
  KernelTable& kernels() override { return *this; }
  Result<std::unique_ptr<Stream>> OpenStream() override {
    TEMPER_ASSIGN_OR_RETURN(auto stream, GpuStream::Open(index_, /*faults=*/false));
    return std::unique_ptr<Stream>(std::move(stream));
  }

  Result<std::span<std::byte>> Allocate(Bytes size) override {
    void* memory = nullptr;
    const auto bytes = static_cast<size_t>(std::max(size, Bytes{1}).v);
    const gpuError_t error = gpuMalloc(&memory, bytes);
    if (error == gpuErrorMemoryAllocation) {
      (void)gpuGetLastError();  // it is not sticky
      size_t free = 0, total = 0;
      (void)gpuMemGetInfo(&free, &total);
      return OutOfMemory(
          TooLittleFree(name_, size, Bytes{static_cast<int64_t>(free)}, Bytes{static_cast<int64_t>(total)}));
    }
    TEMPER_RETURN_IF_ERROR(StatusOfCall(error, "memory"));
    reserved_.push_back(memory);
    TEMPER_RETURN_IF_ERROR(StatusOfCall(gpuMemsetAsync(memory, 0, bytes, stream_->handle()), "clearing memory"));
    return std::span(static_cast<std::byte*>(memory), static_cast<size_t>(size.v));
  }
  void Release(std::span<std::byte> memory) override {
    const auto found = std::find(reserved_.begin(), reserved_.end(), static_cast<void*>(memory.data()));
    TEMPER_CHECK(found != reserved_.end()) << "memory that this device did not give";
    (void)gpuFree(*found);
    reserved_.erase(found);
  }

 private:
  Result<std::unique_ptr<Kernel>> Make(const KernelSpec& spec) override {
    return MakeGpuKernel(spec, {.stream = stream_->handle(),
                                .copies = stream_.get(),
                                .faults = stream_->faults(),
                                .products = products_.get()});
  }

  // What cuBLASLt wants on Hopper for all of its kernels; on others less would do.
  static constexpr Bytes kProductScratch = MiB(32);

  const int index_;
  const std::string name_;
  std::unique_ptr<GpuStream> stream_;
  std::unique_ptr<MatrixProducts> products_;
  std::vector<void*> reserved_;
};

}  // namespace

Result<GpuInventory> ListGpus() {
  return InventoryOf(AskDriver());
}

Result<std::unique_ptr<Device>> OpenGpu(int index) {
  const DriverReport report = AskDriver();
  TEMPER_ASSIGN_OR_RETURN(const GpuInventory inventory, InventoryOf(report));
  TEMPER_RETURN_IF_ERROR(CheckUsable(report, inventory, index));
  auto device = std::make_unique<GpuDevice>(index, inventory.gpus[static_cast<size_t>(index)]);
  TEMPER_RETURN_IF_ERROR(device->Open());
  return std::unique_ptr<Device>(std::move(device));
}

}  // namespace temper
