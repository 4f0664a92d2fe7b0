#include "backend/gpu/products/hipblas_lt.h"

#include <fmt/core.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "backend/gpu/products/lt_products.h"
#include "device/vendor_library.h"

namespace temper::gpu {
namespace {

constexpr const char* kLibraries[] = {"libhipblaslt.so.0", "libhipblaslt.so.1"};  // ROCm 6, ROCm 7
constexpr int kOldestHipblasLt = 600;                                             // 0.6.0: ROCm 6.0

// What is used of the library, as LtProducts names it. Numbers and layouts are those of its header hipblaslt.h, and of
// hipDataType, hipblasOperation_t and hipblasComputeType_t, from ROCm 6 on.
struct HipblasLt {
  static constexpr char kName[] = "hipBLASLt";
  using Handle = void*;
  using Stream = void*;
  using Product = void*;
  using Layout = void*;
  using Preference = void*;
  struct Algorithm {
    uint8_t data[16];
    size_t most_workspace;
  };
  struct Choice {
    Algorithm algo;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
  };
  static_assert(sizeof(Algorithm) == 24 && sizeof(Choice) == 56);
  static constexpr int32_t kF32 = 0, kBf16 = 14;
  static constexpr int32_t kF32Sums = 2;
  static constexpr int32_t kAsItIs = 111, kTransposed = 112;
  static constexpr uint32_t kAddBias = 4;
  static constexpr int kOfFirst = 0, kOfSecond = 1, kEpilogue = 2, kBiasPointer = 3, kBiasType = 4;
  static constexpr int kMostWorkspace = 1;
  static constexpr int kNotSupported = 7;

  std::string file;
  int (*version)(Handle handle, int* version);
  int (*create)(Handle* handle);
  int (*destroy)(Handle handle);
  int (*matmul)(Handle handle, Product product, const void* alpha, const void* a, Layout a_layout, const void* b,
                Layout b_layout, const void* beta, const void* c, Layout c_layout, void* d, Layout d_layout,
                const Algorithm* algorithm, void* workspace, size_t workspace_bytes, Stream stream);
  int (*choose)(Handle handle, Product product, Layout a, Layout b, Layout c, Layout d, Preference preference,
                int wanted, Choice* choices, int* found);
  int (*make_product)(Product* product, int32_t sums, int32_t scale_type);
  int (*drop_product)(Product product);
  int (*set_product)(Product product, int attribute, const void* value, size_t bytes);
  int (*make_layout)(Layout* layout, int32_t type, uint64_t rows, uint64_t columns, int64_t leading);
  int (*drop_layout)(Layout layout);
  int (*make_preference)(Preference* preference);
  int (*drop_preference)(Preference preference);
  int (*set_preference)(Preference preference, int attribute, const void* value, size_t bytes);

  Status Prefer(Preference preference, size_t scratch) const {
    const auto bytes = uint64_t{scratch};
    return StatusOfLt<HipblasLt>(set_preference(preference, kMostWorkspace, &bytes, sizeof(bytes)), "a preference");
  }
};

Result<HipblasLt> LoadHipblasLt(const std::string& named) {
  std::vector<std::string> names(std::begin(kLibraries), std::end(kLibraries));
  if (!named.empty()) names = {named};
  std::optional<VendorLibrary> library;
  HipblasLt lt = {};
  std::string why;
  for (size_t i = 0; i < names.size() && !library; ++i) {
    lt.file = names[i];
    auto opened = VendorLibrary::Open(lt.file);
    if (opened.ok()) {
      library = *std::move(opened);
    } else if (why.empty()) {
      why = opened.status().message();
    }
  }
  if (!library) {
    return Unsupported(fmt::format(
        "{} could not be loaded ({}): install ROCm's hipblaslt, or name its folder in LD_LIBRARY_PATH", names[0], why));
  }
  library->Find("hipblasLtGetVersion", &lt.version);
  library->Find("hipblasLtCreate", &lt.create);
  library->Find("hipblasLtDestroy", &lt.destroy);
  library->Find("hipblasLtMatmul", &lt.matmul);
  library->Find("hipblasLtMatmulAlgoGetHeuristic", &lt.choose);
  library->Find("hipblasLtMatmulDescCreate", &lt.make_product);
  library->Find("hipblasLtMatmulDescDestroy", &lt.drop_product);
  library->Find("hipblasLtMatmulDescSetAttribute", &lt.set_product);
  library->Find("hipblasLtMatrixLayoutCreate", &lt.make_layout);
  library->Find("hipblasLtMatrixLayoutDestroy", &lt.drop_layout);
  library->Find("hipblasLtMatmulPreferenceCreate", &lt.make_preference);
  library->Find("hipblasLtMatmulPreferenceDestroy", &lt.drop_preference);
  library->Find("hipblasLtMatmulPreferenceSetAttribute", &lt.set_preference);
  if (!library->missing().empty()) {
    return Unsupported(fmt::format("{} has no {}: it is too old", lt.file, library->missing()));
  }
  return lt;
}

Result<const HipblasLt*> TheHipblasLt(const std::string& named) {
  static std::mutex mutex;
  static std::map<std::string, Result<HipblasLt>> loaded;
  const std::lock_guard lock(mutex);
  auto it = loaded.find(named);
  if (it == loaded.end()) it = loaded.emplace(named, LoadHipblasLt(named)).first;
  if (!it->second.ok()) return it->second.status();
  return &*it->second;
}

// A handle, and the version that only it knows.
struct Opened {
  HipblasLt::Handle handle = nullptr;
  std::string version;
};
Result<Opened> Open(const HipblasLt& lt) {
  Opened opened;
  TEMPER_RETURN_IF_ERROR(StatusOfLt<HipblasLt>(lt.create(&opened.handle), "its start"));
  int v = 0;
  Status status = StatusOfLt<HipblasLt>(lt.version(opened.handle, &v), "its version");
  opened.version = fmt::format("hipBLASLt {}.{}.{}", v / 100000, v / 100 % 1000, v % 100);
  if (status.ok() && v < kOldestHipblasLt) {
    status = Unsupported(fmt::format("{} is {}: 0.6.0 or newer is needed (ROCm 6)", lt.file, opened.version));
  }
  if (status.ok()) return opened;
  (void)lt.destroy(opened.handle);
  return status;
}

}  // namespace

Result<std::string> HipblasLtVersion(const std::string& library) {
  TEMPER_ASSIGN_OR_RETURN(const HipblasLt* const lt, TheHipblasLt(library));
  TEMPER_ASSIGN_OR_RETURN(const Opened opened, Open(*lt));
  (void)lt->destroy(opened.handle);
  return opened.version;
}

Result<std::unique_ptr<MatrixProducts>> MakeHipblasLtProducts(void* stream, std::span<std::byte> scratch,
                                                              std::unique_ptr<MatrixProducts> otherwise,
                                                              const std::string& library) {
  TEMPER_ASSIGN_OR_RETURN(const HipblasLt* const lt, TheHipblasLt(library));
  TEMPER_ASSIGN_OR_RETURN(const Opened opened, Open(*lt));
  auto products = std::make_unique<LtProducts<HipblasLt>>(*lt, opened.handle, stream, scratch);
  return std::unique_ptr<MatrixProducts>(std::make_unique<ProductsOrElse>(std::move(products), std::move(otherwise)));
}

}  // namespace temper::gpu
