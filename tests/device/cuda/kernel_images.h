// The kernels in a program: what nvcc's objects register when the program starts, and the PTX in their fat binaries,
// read when one of their kernels is first launched.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "ptx_machine.h"

namespace temper::cuda {

// Of one object file.
struct KernelImage {
  std::string_view ptx;  // empty: the object holds none
  std::unique_ptr<ptx::Module> module;
};

// The PTX in a fat binary as nvcc embeds it, uncompressed; empty if there is none.
std::string_view PtxOf(const void* fat_binary);

}  // namespace temper::cuda

struct CUkern_st {
  temper::cuda::KernelImage* image = nullptr;
  std::string name;                  // mangled
  int64_t granted_shared_bytes = 0;  // of dynamic shared memory, by cudaFuncSetAttribute
};
