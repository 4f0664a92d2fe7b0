// The GPU that tests simulate: what it says of itself, its memory, and the error that it has come to, which sticks.
// TEMPER_TEST_GPU chooses which: "9.0" (an H200; the default), "7.0", "8.0", "12.0" or "none". The kernels are
// those of PTX for 9.0a on all of them: nothing here asks for an architecture. "9.0x2" is a machine with two of them,
// of which a process may open one.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <mutex>
#include <string>

#include "device_memory.h"

namespace temper::cuda {

struct GpuFacts {
  const char* number;  // its compute capability
  const char* name;
  int major, minor, multiprocessors;
  int64_t memory;                 // bytes
  int shared_bytes_with_request;  // most shared memory of a block, where cudaFuncSetAttribute asks for it
};

class SimulatedGpu {
 public:
  // Lives as long as the process: kernels are unregistered when it ends.
  static SimulatedGpu& The();

  const GpuFacts* facts() const { return facts_; }  // nullptr: there is none
  int count() const { return count_; }
  DeviceMemory memory;
  // Bytes that allocations may take of what the machine really has (TEMPER_TEST_GPU_MEMORY).
  int64_t real_memory() const { return real_memory_; }
  // Nothing is computed, and no more than kDryBytes of a copy copied; what is checked when work is enqueued is, and
  // memory is as much as the GPU says, zeros (TEMPER_TEST_GPU_DRY): for steps of models as large as a GPU is there for.
  bool dry() const { return dry_; }
  static constexpr size_t kDryBytes = size_t{1} << 20;
  // Kernels with that in their name fail (TEMPER_TEST_GPU_FAIL); empty: none.
  const std::string& kernel_to_fail() const { return kernel_to_fail_; }
  std::mutex machine;  // held by the thread that runs a kernel

  // cudaSuccess, or what a kernel or a copy ended with: every call says so from then on.
  cudaError_t failed() const { return failed_; }
  // Keeps the first, and says at once what happened: CUDA's codes say little.
  void Fail(cudaError_t error, const std::string& why);

 private:
  SimulatedGpu();
  const GpuFacts* facts_ = nullptr;
  int count_ = 0;
  int64_t real_memory_;
  std::string kernel_to_fail_;
  bool dry_;
  std::atomic<cudaError_t> failed_ = cudaSuccess;
};

// A line on stderr.
void Say(const std::string& what);

}  // namespace temper::cuda
