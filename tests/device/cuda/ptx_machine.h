// Runs kernels from their PTX, as nvcc made it, on the host: a GPU without silicon, for tests. Where a GPU would
// compute rubbish in silence (an unallocated address, a misaligned address, shared memory that was never written, a
// barrier that not all threads reach, a product of a warpgroup that is read before it is waited for), the launch fails,
// and the error names kernel, thread and line of PTX.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace temper::ptx {

// Resolves a kernel's global addresses.
class AddressSpace {
 public:
  virtual ~AddressSpace() = default;
  // The host's address of `bytes` bytes from `address` on; nullptr unless they all belong to one allocation.
  virtual std::byte* Find(uint64_t address, int64_t bytes) = 0;
};

// What a launch must know about a kernel.
struct KernelShape {
  std::vector<int64_t> parameter_bytes;
  int max_threads = 1024;  // of a block
  int64_t static_shared_bytes = 0;
};

// The kernels of one PTX file and its variables. Immutable except for the variables; one thread at a time runs its
// kernels.
class Module {
 public:
  // Errors: kUnsupported, with line and text, for an instruction that the machine does not support.
  static Result<std::unique_ptr<Module>> Parse(std::string_view text);
  ~Module();

  bool Has(std::string_view kernel) const;             // its mangled name
  KernelShape ShapeOf(std::string_view kernel) const;  // REQUIRES: Has(kernel)
  struct Launch {
    std::string_view kernel;
    std::array<int, 3> grid, block;
    int64_t dynamic_shared_bytes = 0;
    void* const* arguments = nullptr;  // as cudaLaunchKernel takes them: an address per parameter
  };
  // Runs all blocks, one after the other, in either order. REQUIRES: Has(kernel).
  Status Run(const Launch& launch, AddressSpace& memory);

 private:
  struct State;
  explicit Module(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace temper::ptx
