// The simulated GPU: its properties, its memory, and its first error, which sticks.
// TEMPER_TEST_GPU chooses it: "9.0" (an H200; the default), "7.0", "8.0", "12.0" or
// "none". The kernels are those of PTX for 9.0a on all of them: nothing here asks for an
// architecture. "9.0x2" is a machine with two of them, of which a process may open one.
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
  int shared_bytes_with_request;  // most shared memory of a block, if cudaFuncSetAttribute requests it
};

class SimulatedGpu {
 public:
  // Lives as long as the process: kernels are unregistered when it ends.
  static SimulatedGpu& The();

  const GpuFacts* facts() const { return facts_; }  // nullptr: there is none
  int count() const { return count_; }
  DeviceMemory memory;
  // Bytes that the GPU says it has: those of `facts`, or of a dry one TEMPER_TEST_GPU_MEMORY.
  int64_t memory_size() const { return memory_size_; }
  // Bytes of the machine's real memory that allocations may take (TEMPER_TEST_GPU_MEMORY).
  int64_t real_memory() const { return real_memory_; }
  // Computes nothing and copies at most kDryBytes per copy, but makes all checks that enqueueing makes. Memory is as
  // large as the GPU says, and zero (TEMPER_TEST_GPU_DRY): for steps of models that fill a GPU.
  bool dry() const { return dry_; }
  static constexpr size_t kDryBytes = size_t{1} << 20;
  // Kernels with this in their name fail (TEMPER_TEST_GPU_FAIL); empty: none.
  const std::string& kernel_to_fail() const { return kernel_to_fail_; }
  std::mutex machine;  // held by the thread that runs a kernel

  // cudaSuccess, or the error of a kernel or a copy: every later call returns it.
  cudaError_t failed() const { return failed_; }
  // Keeps the first, and prints what happened at once: CUDA's codes say little.
  void Fail(cudaError_t error, const std::string& why);

 private:
  SimulatedGpu();
  const GpuFacts* facts_ = nullptr;
  int count_ = 0;
  int64_t memory_size_ = 0;
  int64_t real_memory_;
  std::string kernel_to_fail_;
  bool dry_;
  std::atomic<cudaError_t> failed_ = cudaSuccess;
};

// A line on stderr.
void Say(const std::string& what);

}  // namespace temper::cuda
