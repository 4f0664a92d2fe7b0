// Libraries of GPU vendors, loaded when they are needed: a program starts without them.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace temper {

// Folders to search beyond the loader's own, in this order: the toolkits that CUDA_HOME, CUDA_PATH and ROCM_PATH name,
// toolkits in their usual places, and the packages (nvidia-cublas, nvidia-nccl) of the Python environment that is
// active, or whose python3 is the first of PATH (its absolute folders). Only folders that exist.
std::vector<std::string> VendorLibraryFolders();

// An opened library. It is never closed: the process keeps it.
class VendorLibrary {
 public:
  // dlopen of `name` ("libcublasLt.so.13"): where the loader looks, else in the folders above. Errors: the loader's
  // message, and the other places searched.
  static Result<VendorLibrary> Open(const std::string& name);

  // *function = the library's `name`, or nullptr.
  template <class Function>
  void Find(const char* name, Function** function) {
    *function = reinterpret_cast<Function*>(AddressOf(name));
  }
  // The first function that was not found; empty: all were.
  const std::string& missing() const { return missing_; }

 private:
  explicit VendorLibrary(void* handle) : handle_(handle) {}
  void* AddressOf(const char* name);

  void* handle_;
  std::string missing_;
};

}  // namespace temper
