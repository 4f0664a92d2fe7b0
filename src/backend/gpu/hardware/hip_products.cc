// hipBLASLt where it is there, and the HIP that this program runs with is of its time: an older runtime (Debian's 5.2)
// and the one that the library brings would not know each other's streams.
#include "backend/gpu/hardware/vendor_products.h"
#include "backend/gpu/products/hipblas_lt.h"
#include "backend/gpu/products/tile_products.h"

namespace temper::gpu {
namespace {

constexpr int kHip6 = 60000000;  // versions are 10^7 major + 10^5 minor + patch

Status CheckRuntime() {
  int version = 0;
  (void)gpuRuntimeGetVersion(&version);
  if (version >= kHip6) return OkStatus();
  return Unsupported("HIP " + std::to_string(version / 10000000) +
                     " is older than hipBLASLt's: build with ROCm 6 or newer");
}

}  // namespace

Result<std::string> ProductsVersion() {
  Status status = CheckRuntime();
  if (status.ok()) {
    Result<std::string> version = HipblasLtVersion();
    if (version.ok()) return version;
    status = version.status();
  }
  return "products by kernels of Temper's own, far from the peak (" + status.message() + ")";
}

Result<std::unique_ptr<MatrixProducts>> MakeProducts(gpuStream_t stream, std::span<std::byte> scratch) {
  if (CheckRuntime().ok()) {
    auto products = MakeHipblasLtProducts(stream, scratch, MakeTileProducts(stream));
    if (products.ok()) return products;
  }
  return MakeTileProducts(stream);
}

}  // namespace temper::gpu
