#include "backend/gpu/hardware/vendor_products.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>

namespace temper::gpu {
namespace {

constexpr const char* kLibrary = "libcublasLt.so.13";  // the major version of the headers
static_assert(CUBLAS_VER_MAJOR == 13, "kLibrary, and what is declared of it, are of another version");

// What is used of the library.
struct Api {
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
};

Result<Api> Load() {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);  // never closed: the process keeps it
  if (library == nullptr) {
    return Unsupported(fmt::format(
        "{} could not be loaded ({}): install CUDA 13's cuBLAS (package libcublas-13-0), or name its folder in "
        "LD_LIBRARY_PATH",
        kLibrary, dlerror()));
  }
  Api api = {};
  std::string missing;
  const auto find = [&](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
    if (*function == nullptr) missing = name;
  };
  find("cublasLtGetVersion", &api.version);
  find("cublasLtCreate", &api.create);
  find("cublasLtDestroy", &api.destroy);
  find("cublasLtMatmul", &api.matmul);
  find("cublasLtMatmulAlgoGetHeuristic", &api.choose);
  find("cublasLtMatmulDescCreate", &api.make_product);
  find("cublasLtMatmulDescDestroy", &api.drop_product);
  find("cublasLtMatmulDescSetAttribute", &api.set_product);
  find("cublasLtMatrixLayoutCreate", &api.make_layout);
  find("cublasLtMatrixLayoutDestroy", &api.drop_layout);
  find("cublasLtMatmulPreferenceCreate", &api.make_preference);
  find("cublasLtMatmulPreferenceDestroy", &api.drop_preference);
  find("cublasLtMatmulPreferenceSetAttribute", &api.set_preference);
  if (!missing.empty()) return Unsupported(fmt::format("{} has no {}: it is of another version", kLibrary, missing));
  return api;
}

const Result<Api>& TheApi() {
  static const Result<Api> api = Load();
  return api;
}

Status StatusOf(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return OkStatus();
  return InvalidArgument(fmt::format("cuBLASLt: {} failed with status {}", what, static_cast<int>(status)));
}

cudaDataType TypeOf(DType t) {
  return t == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF;
}

// The library is column-major: it computes out^T[n, m] = B[n, k] A^T[k, m], our B first.
class LtProduct final : public MatrixProduct {
 public:
  LtProduct(const Api& api, cublasLtHandle_t handle, gpuStream_t stream, std::span<std::byte> scratch,
            const ProductShape& shape)
      : api_(api),
        handle_(handle),
        stream_(stream),
        scratch_(scratch),
        shape_(shape),
        scale_(static_cast<float>(shape.scale)) {}
  ~LtProduct() override {
    if (product_ != nullptr) api_.drop_product(product_);
    for (const cublasLtMatrixLayout_t layout : {b_, a_, out_}) {
      if (layout != nullptr) api_.drop_layout(layout);
    }
  }

  Status Plan() {
    const auto transposed = [](bool yes) { return yes ? CUBLAS_OP_T : CUBLAS_OP_N; };
    const cublasOperation_t first = transposed(shape_.b_k_contiguous), second = transposed(!shape_.a_k_contiguous);
    TEMPER_RETURN_IF_ERROR(StatusOf(api_.make_product(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a product"));
    TEMPER_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_TRANSA, first));
    TEMPER_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_TRANSB, second));
    const cudaDataType in = TypeOf(shape_.dtype);
    if (shape_.bias) {
      TEMPER_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS));
      TEMPER_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, in));
    }
    TEMPER_RETURN_IF_ERROR(Layout(&b_, in, shape_.n, shape_.k, shape_.b_k_contiguous));
    TEMPER_RETURN_IF_ERROR(Layout(&a_, in, shape_.m, shape_.k, shape_.a_k_contiguous));
    TEMPER_RETURN_IF_ERROR(Layout(&out_, TypeOf(shape_.out_dtype), shape_.n, shape_.m, false));
    return Choose();
  }

  Status Run(const ProductOperands& o) override {
    if (shape_.bias) TEMPER_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.bias));
    const float beta = shape_.acc ? 1.0f : 0.0f;
    return StatusOf(api_.matmul(handle_, product_, &scale_, o.b, b_, o.a, a_, &beta, shape_.acc ? o.acc : o.out, out_,
                                o.out, out_, &algorithm_, scratch_.data(), scratch_.size(), stream_),
                    "a product");
  }

 private:
  template <class T>
  Status Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    return StatusOf(api_.set_product(product_, attribute, &value, sizeof(value)), "an attribute");
  }
  // Of a matrix that is [lines, k] row by row where `by_rows`, else [k, lines].
  Status Layout(cublasLtMatrixLayout_t* layout, cudaDataType type, int64_t lines, int64_t k, bool by_rows) {
    const int64_t rows = by_rows ? k : lines, columns = by_rows ? lines : k;
    return StatusOf(api_.make_layout(layout, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), rows),
                    "a layout");
  }

  Status Choose() {
    cublasLtMatmulPreference_t preference = nullptr;
    TEMPER_RETURN_IF_ERROR(StatusOf(api_.make_preference(&preference), "a preference"));
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      return StatusOf(api_.set_preference(preference, attribute, &value, sizeof(value)), "a preference");
    };
    Status status = set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(scratch_.size()));
    // In-place reductions add the parts of a split k in the order in which they come.
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (status.ok()) status = set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
    for (const auto alignment :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      if (status.ok()) status = set(alignment, uint32_t{kOperandAlignment});  // its default is 256
    }
    cublasLtMatmulHeuristicResult_t chosen = {};
    int found = 0;
    if (status.ok()) {
      status = StatusOf(api_.choose(handle_, product_, b_, a_, out_, out_, preference, 1, &chosen, &found), "a choice");
    }
    api_.drop_preference(preference);
    TEMPER_RETURN_IF_ERROR(status);
    if (found == 0) {
      return Unsupported(fmt::format("cuBLASLt has no product [{}, {}] x [{}, {}] of {} into {} within {} bytes",
                                     shape_.m, shape_.k, shape_.n, shape_.k, ToString(shape_.dtype),
                                     ToString(shape_.out_dtype), scratch_.size()));
    }
    algorithm_ = chosen.algo;
    return OkStatus();
  }

  static constexpr int kOperandAlignment = 64;  // of every address of an arena (program/program.h)

  const Api& api_;
  const cublasLtHandle_t handle_;
  const gpuStream_t stream_;
  const std::span<std::byte> scratch_;
  const ProductShape shape_;
  const float scale_;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t b_ = nullptr, a_ = nullptr, out_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_ = {};
};

class BlasLt final : public MatrixProducts {
 public:
  BlasLt(const Api& api, cublasLtHandle_t handle, gpuStream_t stream, std::span<std::byte> scratch)
      : api_(api), handle_(handle), stream_(stream), scratch_(scratch) {}
  ~BlasLt() override { api_.destroy(handle_); }
  Result<std::unique_ptr<MatrixProduct>> Make(const ProductShape& shape) override {
    for (const DType t : {shape.dtype, shape.out_dtype}) {
      if (t != DType::kF32 && t != DType::kBF16) return Unsupported("a matrix product in " + std::string(ToString(t)));
    }
    if (shape.k == 0) return Unsupported("a matrix product over no terms");
    auto product = std::make_unique<LtProduct>(api_, handle_, stream_, scratch_, shape);
    TEMPER_RETURN_IF_ERROR(product->Plan());
    return std::unique_ptr<MatrixProduct>(std::move(product));
  }

 private:
  const Api& api_;
  const cublasLtHandle_t handle_;
  const gpuStream_t stream_;
  const std::span<std::byte> scratch_;
};

}  // namespace

Result<std::string> ProductsVersion() {
  if (!TheApi().ok()) return TheApi().status();
  const size_t v = (*TheApi()).version();  // 130100 is 13.1.0
  return fmt::format("cuBLASLt {}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

Result<std::unique_ptr<MatrixProducts>> MakeProducts(gpuStream_t stream, std::span<std::byte> scratch) {
  if (!TheApi().ok()) return TheApi().status();
  const Api& api = *TheApi();
  cublasLtHandle_t handle = nullptr;
  TEMPER_RETURN_IF_ERROR(StatusOf(api.create(&handle), "its start"));
  return std::unique_ptr<MatrixProducts>(std::make_unique<BlasLt>(api, handle, stream, scratch));
}

}  // namespace temper::gpu
