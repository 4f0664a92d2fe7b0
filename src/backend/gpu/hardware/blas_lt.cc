#include <cublasLt.h>
#include <fmt/core.h>

#include "backend/gpu/hardware/vendor_products.h"
#include "backend/gpu/products/lt_products.h"
#include "backend/gpu/products/tile_products.h"
#include "device/vendor_library.h"

namespace temper::gpu {
namespace {

static_assert(CUBLAS_VER_MAJOR == 12 || CUBLAS_VER_MAJOR == 13,
              "what is used of the library was read in these versions");
// Of the version of the headers.
constexpr const char* kBlasLt = CUBLAS_VER_MAJOR == 12 ? "libcublasLt.so.12" : "libcublasLt.so.13";

// What is used of the library, as LtProducts names it.
struct CublasLt {
  static constexpr char kName[] = "cuBLASLt";
  using Handle = cublasLtHandle_t;
  using Stream = gpuStream_t;
  using Product = cublasLtMatmulDesc_t;
  using Layout = cublasLtMatrixLayout_t;
  using Preference = cublasLtMatmulPreference_t;
  using Choice = cublasLtMatmulHeuristicResult_t;
  using Algorithm = cublasLtMatmulAlgo_t;
  static constexpr auto kF32 = CUDA_R_32F, kBf16 = CUDA_R_16BF;
  static constexpr auto kF32Sums = CUBLAS_COMPUTE_32F;
  static constexpr auto kAsItIs = CUBLAS_OP_N, kTransposed = CUBLAS_OP_T;
  static constexpr auto kAddBias = CUBLASLT_EPILOGUE_BIAS;
  static constexpr auto kOfFirst = CUBLASLT_MATMUL_DESC_TRANSA, kOfSecond = CUBLASLT_MATMUL_DESC_TRANSB,
                        kEpilogue = CUBLASLT_MATMUL_DESC_EPILOGUE, kBiasType = CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
                        kBiasPointer = CUBLASLT_MATMUL_DESC_BIAS_POINTER;
  static constexpr auto kNotSupported = CUBLAS_STATUS_NOT_SUPPORTED;

  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) choose;
  decltype(&cublasLtMatmulDescCreate) make_product;
  decltype(&cublasLtMatmulDescDestroy) drop_product;
  decltype(&cublasLtMatmulDescSetAttribute) set_product;
  decltype(&cublasLtMatrixLayoutCreate) make_layout;
  decltype(&cublasLtMatrixLayoutDestroy) drop_layout;
  decltype(&cublasLtMatmulPreferenceCreate) make_preference;
  decltype(&cublasLtMatmulPreferenceDestroy) drop_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;

  Status Prefer(Preference preference, size_t scratch) const {
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      return StatusOfLt<CublasLt>(set_preference(preference, attribute, &value, sizeof(value)), "a preference");
    };
    TEMPER_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{scratch}));
    // In-place reductions add the parts of a split k in the order in which they come.
    TEMPER_RETURN_IF_ERROR(
        set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}));
    for (const auto alignment :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      TEMPER_RETURN_IF_ERROR(set(alignment, static_cast<uint32_t>(kProductOperandAlignment)));  // its default is 256
    }
    return OkStatus();
  }
};

Result<CublasLt> LoadBlasLt() {
  auto library = VendorLibrary::Open(kBlasLt);
  if (!library.ok()) {
    constexpr int kMajor = CUBLAS_VER_MAJOR;
    return Unsupported(fmt::format(
        "{} could not be loaded ({}): install CUDA {}'s cuBLAS (package libcublas-{}-{}, of Python {}), or name its "
        "folder in LD_LIBRARY_PATH",
        kBlasLt, library.status().message(), kMajor, kMajor, CUBLAS_VER_MINOR,
        kMajor == 12 ? "nvidia-cublas-cu12" : "nvidia-cublas"));
  }
  CublasLt lt = {};
  library->Find("cublasLtGetVersion", &lt.version);
  library->Find("cublasLtCreate", &lt.create);
  library->Find("cublasLtDestroy", &lt.destroy);
  library->Find("cublasLtMatmul", &lt.matmul);
  library->Find("cublasLtMatmulAlgoGetHeuristic", &lt.choose);
  library->Find("cublasLtMatmulDescCreate", &lt.make_product);
  library->Find("cublasLtMatmulDescDestroy", &lt.drop_product);
  library->Find("cublasLtMatmulDescSetAttribute", &lt.set_product);
  library->Find("cublasLtMatrixLayoutCreate", &lt.make_layout);
  library->Find("cublasLtMatrixLayoutDestroy", &lt.drop_layout);
  library->Find("cublasLtMatmulPreferenceCreate", &lt.make_preference);
  library->Find("cublasLtMatmulPreferenceDestroy", &lt.drop_preference);
  library->Find("cublasLtMatmulPreferenceSetAttribute", &lt.set_preference);
  if (!library->missing().empty()) {
    return Unsupported(fmt::format("{} has no {}: it is of another version", kBlasLt, library->missing()));
  }
  return lt;
}

const Result<CublasLt>& TheBlasLt() {
  static const Result<CublasLt> lt = LoadBlasLt();
  return lt;
}

}  // namespace

Result<std::string> ProductsVersion() {
  if (!TheBlasLt().ok()) return TheBlasLt().status();
  const size_t v = TheBlasLt()->version();  // 130100 is 13.1.0
  return fmt::format("cuBLASLt {}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

Result<std::unique_ptr<MatrixProducts>> MakeProducts(gpuStream_t stream, std::span<std::byte> scratch) {
  if (!TheBlasLt().ok()) return TheBlasLt().status();
  const CublasLt& lt = *TheBlasLt();
  cublasLtHandle_t handle = nullptr;
  TEMPER_RETURN_IF_ERROR(StatusOfLt<CublasLt>(lt.create(&handle), "its start"));
  auto products = std::make_unique<LtProducts<CublasLt>>(lt, handle, stream, scratch);
  return std::unique_ptr<MatrixProducts>(
      std::make_unique<ProductsOrElse>(std::move(products), MakeTileProducts(stream)));
}

}  // namespace temper::gpu
