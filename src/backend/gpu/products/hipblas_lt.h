// Matrix products by AMD's hipBLASLt, declared in hipblas_lt.cc as far as it is used and loaded at run time: neither
// its headers nor the library are packaged by Debian. Host code, which does not depend on HIP's headers.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "backend/gpu/products/matrix_product.h"

namespace temper::gpu {

// "hipBLASLt 0.10.0". `library`: its name, tried before those that ROCm 6 and 7 give it; "": these alone. Errors, of
// one line: it is missing, it lacks a function, or it is older than ROCm 6, whose type numbers differ.
Result<std::string> HipblasLtVersion(const std::string& library = "");

// Products on `stream`, a hipStream_t, with `scratch` of the device's memory for all of them; both outlive them, and so
// does `otherwise`, which makes products for which the library has no kernel. Sums are f32. Errors: as
// HipblasLtVersion.
Result<std::unique_ptr<MatrixProducts>> MakeHipblasLtProducts(void* stream, std::span<std::byte> scratch,
                                                              std::unique_ptr<MatrixProducts> otherwise,
                                                              const std::string& library = "");

}  // namespace temper::gpu
