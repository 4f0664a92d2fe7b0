// Libraries of GPUs' vendors, which are loaded when they are needed: a program starts without them.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace temper {

// Where such libraries lie without the loader's knowing it, in this order: the toolkits that CUDA_HOME, CUDA_PATH and
// ROCM_PATH name, those in their usual places, and the packages (nvidia-cublas, nvidia-nccl) of the Python environment
// that is active, or whose python3 is found first. Those folders that there are.
std::vector<std::string> VendorLibraryFolders();

// A library that was opened, and is never closed: the process keeps it.
class VendorLibrary {
 public:
  // dlopen of `name` ("libcublasLt.so.13"): where the loader looks, else in the folders above. Errors: what the loader
  // said, and where else it was looked for.
  static Result<VendorLibrary> Open(const std::string& name);

  // *function = the library's `name`, or nullptr.
  template <class Function>
  void Find(const char* name, Function** function) {
    *function = reinterpret_cast<Function*>(AddressOf(name));
  }
  // The first that was not found; empty: all were.
  const std::string& missing() const { return missing_; }

 private:
  explicit VendorLibrary(void* handle) : handle_(handle) {}
  void* AddressOf(const char* name);

  void* handle_;
  std::string missing_;
};

}  // namespace temper
