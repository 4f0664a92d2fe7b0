// CUDA's runtime, for tests: the functions that nvcc's objects call. They register their kernels when the program
// starts, and launch them.
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "calls.h"
#include "kernel_images.h"

namespace temper::cuda {
namespace {

// Tests that need no GPU use this one.
[[maybe_unused]] const int kAskedFor = setenv("TEMPER_TEST_DEVICE", "gpu", /*overwrite=*/0);

std::map<const void*, CUkern_st>& Kernels() {
  static auto* const kernels = new std::map<const void*, CUkern_st>;  // by the host function that stands for a kernel
  return *kernels;
}

// The configuration in <<< >>>.
struct Configuration {
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

bool AreWithin(const dim3& size, const std::array<unsigned, 3>& most) {
  return size.x >= 1 && size.y >= 1 && size.z >= 1 && size.x <= most[0] && size.y <= most[1] && size.z <= most[2];
}

// A launch with copies of its arguments.
struct EnqueuedLaunch {
  CUkern_st* kernel;
  std::array<int, 3> grid, block;
  int64_t shared_bytes;
  std::vector<std::vector<std::byte>> arguments;

  cudaError_t Run() const {
    std::vector<void*> addresses;
    for (const auto& argument : arguments) addresses.push_back(const_cast<std::byte*>(argument.data()));
    SimulatedGpu& gpu = SimulatedGpu::The();
    if (gpu.dry()) return cudaSuccess;
    if (!gpu.kernel_to_fail().empty() && kernel->name.find(gpu.kernel_to_fail()) != std::string::npos) {
      return cudaErrorLaunchFailure;
    }
    const std::lock_guard lock(gpu.machine);
    const Status status = kernel->image->module->Run({.kernel = kernel->name,
                                                      .grid = grid,
                                                      .block = block,
                                                      .dynamic_shared_bytes = shared_bytes,
                                                      .arguments = addresses.data()},
                                                     gpu.memory);
    if (status.ok()) return cudaSuccess;
    gpu.Fail(cudaErrorLaunchFailure, status.message());
    return cudaErrorLaunchFailure;
  }
};

// Reads the kernel's image on first use.
cudaError_t Load(const CUkern_st& kernel) {
  const std::lock_guard lock(SimulatedGpu::The().machine);
  KernelImage& image = *kernel.image;
  if (image.module == nullptr) {
    if (image.ptx.empty()) return cudaErrorNoKernelImageForDevice;
    auto module = ptx::Module::Parse(image.ptx);
    if (!module.ok()) {
      Say(module.status().message());
      return cudaErrorInvalidPtx;
    }
    image.module = std::move(*module);
  }
  return image.module->Has(kernel.name) ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}

cudaError_t Launch(CUkern_st* kernel, const dim3& grid, const dim3& block, void** arguments, size_t shared_bytes,
                   cudaStream_t stream) {
  if (const cudaError_t error = Usable(); error != cudaSuccess) return error;
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  if (const cudaError_t error = Load(*kernel); error != cudaSuccess) return error;
  if (!AreWithin(grid, {0x7FFFFFFF, 65535, 65535}) || !AreWithin(block, {1024, 1024, 64}) ||
      uint64_t{block.x} * block.y * block.z > 1024) {
    return cudaErrorInvalidConfiguration;
  }
  const ptx::KernelShape shape = kernel->image->module->ShapeOf(kernel->name);
  if (uint64_t{block.x} * block.y * block.z > static_cast<uint64_t>(shape.max_threads)) return cudaErrorInvalidValue;
  // By default a block may have 48 KiB, of both kinds together.
  const int64_t most = std::max((48 << 10) - shape.static_shared_bytes, kernel->granted_shared_bytes);
  if (static_cast<int64_t>(shared_bytes) > most) {
    Say(fmt::format("{}: {} bytes of shared memory, of {} that were asked for (cudaFuncSetAttribute)", kernel->name,
                    shared_bytes, most));
    return cudaErrorInvalidValue;
  }
  EnqueuedLaunch launch = {.kernel = kernel,
                           .grid = {static_cast<int>(grid.x), static_cast<int>(grid.y), static_cast<int>(grid.z)},
                           .block = {static_cast<int>(block.x), static_cast<int>(block.y), static_cast<int>(block.z)},
                           .shared_bytes = static_cast<int64_t>(shared_bytes),
                           .arguments = {}};
  for (size_t i = 0; i < shape.parameter_bytes.size(); ++i) {
    const auto* const from = static_cast<const std::byte*>(arguments[i]);
    launch.arguments.emplace_back(from, from + shape.parameter_bytes[i]);
  }
  StreamOf(stream).Enqueue([launch = std::move(launch)] { return launch.Run(); });
  return cudaSuccess;
}

}  // namespace
}  // namespace temper::cuda

using namespace temper::cuda;  // the functions below are C's

extern "C" {

// The compiler's wrapper of a fat binary (fatbinary_section.h).
struct FatBinaryWrapper {
  int magic, version;
  const void* data;
  void* names;
};

void** __cudaRegisterFatBinary(void* wrapper) {
  auto* const image = new KernelImage{.ptx = PtxOf(static_cast<const FatBinaryWrapper*>(wrapper)->data), .module = {}};
  return reinterpret_cast<void**>(image);
}
void __cudaRegisterFatBinaryEnd(void**) {}
// When the program ends: objects that others may still use stay.
void __cudaUnregisterFatBinary(void**) {}

void __cudaRegisterFunction(void** image, const char* host_function, char*, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  Kernels()[host_function] = {.image = reinterpret_cast<KernelImage*>(image), .name = name};
}
// Constants of kernels, which have their values from the PTX.
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream) {
  configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
  if (configurations.empty()) return Ended(cudaErrorMissingConfiguration);
  const Configuration c = configurations.back();
  configurations.pop_back();
  *grid = c.grid;
  *block = c.block;
  *shared_bytes = c.shared_bytes;
  std::memcpy(stream, &c.stream, sizeof(c.stream));
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host_function) {
  const auto found = Kernels().find(host_function);
  if (found == Kernels().end()) return Ended(cudaErrorInvalidDeviceFunction);
  *kernel = &found->second;
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                               cudaStream_t stream) {
  return Ended(Launch(kernel, grid, block, arguments, shared_bytes, stream));
}

cudaError_t cudaFuncSetAttribute(const void* host_function, cudaFuncAttribute attribute, int value) {
  if (const cudaError_t error = Usable(); error != cudaSuccess) return Ended(error);
  const auto found = Kernels().find(host_function);
  if (found == Kernels().end()) return Ended(cudaErrorInvalidDeviceFunction);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return Ended(cudaErrorInvalidValue);
  CUkern_st& kernel = found->second;
  if (const cudaError_t error = Load(kernel); error != cudaSuccess) return Ended(error);
  const int64_t most = SimulatedGpu::The().facts()->shared_bytes_with_request -
                       kernel.image->module->ShapeOf(kernel.name).static_shared_bytes;
  if (value < 0 || value > most) return Ended(cudaErrorInvalidValue);
  kernel.granted_shared_bytes = value;
  return cudaSuccess;
}

}  // extern "C"
