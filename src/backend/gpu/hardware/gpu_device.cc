#include "backend/gpu/gpu_device.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/gpu/faults.h"
#include "backend/gpu/gpu_api.h"
#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/hardware/blas_lt.h"

namespace temper {
namespace {

using namespace gpu;  // the names of gpu_api.h

// bf16 in matrix units: from Ampere on.
constexpr int kOldestMajor = 8;

std::string NameOf(gpuError_t error) {
  return fmt::format("{} ({})", gpuGetErrorString(error), static_cast<int>(error));
}
Status StatusOf(gpuError_t error, const char* what) {
  return error == gpuSuccess ? OkStatus() : InvalidArgument(fmt::format("GPU: {}: {}", what, NameOf(error)));
}

std::string DottedVersion(int version) {  // 13000 is 13.0
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Result<int> CountGpus() {
  int count = 0;
  const gpuError_t error = gpuGetDeviceCount(&count);
  if (error == gpuErrorInsufficientDriver) {
    int driver = 0, runtime = 0;
    gpuDriverGetVersion(&driver);
    gpuRuntimeGetVersion(&runtime);
    if (driver == 0) return NotFound("no driver for a GPU was found: install NVIDIA's (nvidia-smi shows it)");
    return Unsupported(fmt::format("the GPU's driver is too old: it serves CUDA {}, this build needs {}; update it",
                                   DottedVersion(driver), DottedVersion(runtime)));
  }
  if (error == gpuErrorNoDevice || (error == gpuSuccess && count == 0)) {
    return NotFound("no GPU was found (nvidia-smi lists them; CUDA_VISIBLE_DEVICES may hide them)");
  }
  TEMPER_RETURN_IF_ERROR(StatusOf(error, "counting devices"));
  return count;
}

Result<GpuFacts> FactsOf(int index) {
  gpuDeviceProp properties;
  TEMPER_RETURN_IF_ERROR(StatusOf(gpuGetDeviceProperties(&properties, index), "properties"));
  GpuFacts facts = {.name = properties.name, .major = properties.major, .minor = properties.minor};
  facts.memory = {static_cast<int64_t>(properties.totalGlobalMem)};
  if (facts.major < kOldestMajor) {
    facts.refused = fmt::format(
        "its compute capability is {}.{}; bf16 needs 8.0 or newer (A100, RTX 30). `temper plan` "
        "works without it",
        facts.major, facts.minor);
  }
  size_t free = 0, total = 0;
  TEMPER_RETURN_IF_ERROR(StatusOf(gpuSetDevice(index), "selecting"));
  TEMPER_RETURN_IF_ERROR(StatusOf(gpuMemGetInfo(&free, &total), "free memory"));
  facts.free = {static_cast<int64_t>(free)};
  return facts;
}

class GpuDevice final : public Device, private Stream, private KernelTable {
 public:
  explicit GpuDevice(const GpuFacts& facts) : name_(facts.name) {}
  ~GpuDevice() override {
    if (stream_ != nullptr) gpuStreamSynchronize(stream_);
    products_.reset();
    for (void* memory : reserved_) gpuFree(memory);
    if (words_ != nullptr) gpuFree(words_);
    if (words_on_host_ != nullptr) gpuFreeHost(words_on_host_);
    if (stream_ != nullptr) gpuStreamDestroy(stream_);
  }

  Status Open() {
    TEMPER_RETURN_IF_ERROR(StatusOf(gpuStreamCreateWithFlags(&stream_, gpuStreamNonBlocking), "a stream"));
    constexpr size_t kBytes = sizeof(int64_t) * kMaxFaults;
    TEMPER_RETURN_IF_ERROR(StatusOf(gpuMalloc(reinterpret_cast<void**>(&words_), kBytes), "memory of faults"));
    TEMPER_RETURN_IF_ERROR(
        StatusOf(gpuMallocHost(reinterpret_cast<void**>(&words_on_host_), kBytes), "pinned memory of faults"));
    TEMPER_RETURN_IF_ERROR(StatusOf(gpuMemsetAsync(words_, 0, kBytes, stream_), "clearing"));
    faults_ = std::make_unique<Faults>(words_);
    TEMPER_ASSIGN_OR_RETURN(products_, MakeBlasLt(stream_));
    return OkStatus();
  }

  const std::string& name() const override { return name_; }
  Stream& stream() override { return *this; }
  KernelTable& kernels() override { return *this; }

  Result<std::span<std::byte>> Allocate(Bytes size) override {
    void* memory = nullptr;
    const auto bytes = static_cast<size_t>(std::max(size, Bytes{1}).v);
    const gpuError_t error = gpuMalloc(&memory, bytes);
    if (error == gpuErrorMemoryAllocation) {
      gpuGetLastError();  // it is not sticky
      size_t free = 0, total = 0;
      gpuMemGetInfo(&free, &total);
      return OutOfMemory(fmt::format(
          "the run needs an arena of {} but {} has {} of {} free: another process may hold the rest (nvidia-smi lists "
          "them). Try --memory.recompute block, a smaller --max_seq_len or --per_device_train_batch_size, or --method "
          "lora",
          ToString(size), name_, ToString(Bytes{static_cast<int64_t>(free)}),
          ToString(Bytes{static_cast<int64_t>(total)})));
    }
    TEMPER_RETURN_IF_ERROR(StatusOf(error, "memory"));
    reserved_.push_back(memory);
    TEMPER_RETURN_IF_ERROR(StatusOf(gpuMemsetAsync(memory, 0, bytes, stream_), "clearing memory"));
    return std::span(static_cast<std::byte*>(memory), static_cast<size_t>(size.v));
  }

 private:
  Result<std::unique_ptr<Kernel>> Make(const KernelSpec& spec) override {
    return MakeGpuKernel(spec,
                         {.stream = stream_, .copies = this, .faults = faults_.get(), .products = products_.get()});
  }

  Status CopyToDevice(std::span<const std::byte> host, std::byte* device) override {
    if (!failed_.ok() || host.empty()) return failed_;
    return StatusOf(gpuMemcpyAsync(device, host.data(), host.size(), gpuMemcpyHostToDevice, stream_), "copying to it");
  }
  Status CopyToHost(const std::byte* device, std::span<std::byte> host) override {
    if (!failed_.ok() || host.empty()) return failed_;
    return StatusOf(gpuMemcpyAsync(host.data(), device, host.size(), gpuMemcpyDeviceToHost, stream_),
                    "copying from it");
  }
  Status Synchronize() override {
    if (!failed_.ok()) return failed_;
    constexpr size_t kBytes = sizeof(int64_t) * kMaxFaults;
    failed_ =
        StatusOf(gpuMemcpyAsync(words_on_host_, words_, kBytes, gpuMemcpyDeviceToHost, stream_), "copying faults");
    if (failed_.ok()) failed_ = StatusOf(gpuStreamSynchronize(stream_), "a kernel");
    if (failed_.ok()) failed_ = faults_->Check({words_on_host_, static_cast<size_t>(kMaxFaults)});
    return failed_;
  }

  const std::string name_;
  gpuStream_t stream_ = nullptr;
  int64_t *words_ = nullptr, *words_on_host_ = nullptr;
  std::unique_ptr<Faults> faults_;
  std::unique_ptr<MatrixProducts> products_;
  std::vector<void*> reserved_;
  Status failed_;
};

}  // namespace

Result<GpuInventory> ListGpus() {
  TEMPER_ASSIGN_OR_RETURN(const int count, CountGpus());
  GpuInventory inventory;
  int driver = 0, runtime = 0;
  gpuDriverGetVersion(&driver);
  gpuRuntimeGetVersion(&runtime);
  const auto blas = BlasLtVersion();
  inventory.libraries = fmt::format("CUDA runtime {}, driver {}, {}", DottedVersion(runtime), DottedVersion(driver),
                                    blas.ok() ? "cuBLASLt " + *blas : blas.status().message());
  for (int i = 0; i < count; ++i) {
    TEMPER_ASSIGN_OR_RETURN(GpuFacts facts, FactsOf(i));
    inventory.gpus.push_back(std::move(facts));
  }
  return inventory;
}

Result<std::unique_ptr<Device>> OpenGpu(int index) {
  TEMPER_ASSIGN_OR_RETURN(const int count, CountGpus());
  if (index < 0 || index >= count) {
    return NotFound(fmt::format("there is no GPU {}: this machine has {}, numbered from 0", index, count));
  }
  TEMPER_ASSIGN_OR_RETURN(const GpuFacts facts, FactsOf(index));
  if (!facts.refused.empty()) return Unsupported(fmt::format("GPU {} ({}): {}", index, facts.name, facts.refused));
  auto device = std::make_unique<GpuDevice>(facts);
  TEMPER_RETURN_IF_ERROR(device->Open());
  return std::unique_ptr<Device>(std::move(device));
}

}  // namespace temper
