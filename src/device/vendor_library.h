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

// dlopen of `name` ("libcublasLt.so.13"): where the loader looks, else in these folders. The library is never closed:
// the process keeps it. Errors: what the loader said, and where else it was looked for.
Result<void*> LoadVendorLibrary(const std::string& name);

}  // namespace temper
