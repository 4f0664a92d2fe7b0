// A stand-in for the cuBLASLt functions that are used, for tests: it multiplies on the simulated GPU, in the order of
// the stream. It refuses what cublasLt.h does not allow: matrices that do not fit, less workspace or alignment than the
// heuristics were given, a bias of another type than the output.
//   TEST_CUBLASLT_FASTEST=k   offers eight algorithms (offered_algorithms.h)
//   TEST_CUBLASLT_VERSION=n   pretends to be that version
#include <cublasLt.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "../../apart_stream.h"
#include "../offered_algorithms.h"

namespace {

constexpr uint64_t kWorkspace = 1024;  // bytes that its kernels need
// "Must be 256 B aligned."
constexpr uintptr_t kWorkspaceAlignment = 256;

// The content of the opaque structs.
using Layout = temper::ColumnMajorLayout;
struct Product {
  int32_t transposes[2] = {CUBLAS_OP_N, CUBLAS_OP_N};
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  int32_t bias_type = -1;  // that of the output
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t alignments[4] = {256, 256, 256, 256};
};
struct Algorithm {
  uint64_t magic;
  int32_t number;
  uint32_t alignments[5];  // of A, B, C, D and the bias
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));
constexpr uint64_t kMagic = 0x7E57A160;
constexpr temper::OfferedAlgorithms kAlgorithms("TEST_CUBLASLT_FASTEST");

template <class T>
T& As(void* opaque) {
  return *static_cast<T*>(opaque);
}
template <class T>
cublasStatus_t Take(T* to, const void* value, size_t bytes) {
  if (value == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
uint32_t AlignmentOf(const void* address) {
  const auto a = reinterpret_cast<uintptr_t>(address);
  return a == 0 ? 256 : static_cast<uint32_t>(std::min<uintptr_t>(a & (~a + 1), 256));
}
bool IsAligned(const void* address, uint64_t alignment) {
  return reinterpret_cast<uintptr_t>(address) % alignment == 0;
}

// Operands by their device addresses, until the product runs.
struct Enqueued {
  temper::ColumnMajorProduct product;
  int algorithm;
  ApartStreamHandle stream;
  const char* Run() {
    auto& p = product;
    for (temper::ColumnMajorMatrix* matrix : {&p.a, &p.b, &p.c, &p.d, &p.bias}) {
      if (matrix->data == nullptr) continue;
      const Layout& l = matrix->layout;
      const int64_t bytes = ((l.columns - 1) * l.leading + l.rows) * (l.type == temper::kColumnMajorBf16 ? 2 : 4);
      auto* const begin = static_cast<std::byte*>(matrix->data);
      void* const first = stream.memory_at(stream.stream, begin);
      void* const last = stream.memory_at(stream.stream, begin + bytes - 1);
      if (first == nullptr || last == nullptr) return "a matrix product beyond the memory of its operands";
      if (static_cast<std::byte*>(last) - static_cast<std::byte*>(first) != bytes - 1) {
        return "a matrix product across allocations";
      }
      matrix->data = first;
    }
    constexpr double kSlow = 10;  // beside which a busy machine's noise is none
    if (kAlgorithms.IsSlow(algorithm)) stream.pass_time(stream.stream, kSlow);
    kAlgorithms.Compute(algorithm, p);
    return nullptr;
  }
};

}  // namespace

extern "C" {

size_t cublasLtGetVersion() {
  const char* const pretended = std::getenv("TEST_CUBLASLT_VERSION");
  return pretended != nullptr ? static_cast<size_t>(std::atoll(pretended)) : CUBLAS_VERSION;
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new int(1));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<int*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
  const Layout made = {type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), leading};
  if (!made.valid()) return CUBLAS_STATUS_INVALID_VALUE;
  *layout = new cublasLtMatrixLayoutOpaque_t;
  new (*layout) Layout(made);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(const cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t sums,
                                        cudaDataType_t scale_type) {
  if (sums != CUBLAS_COMPUTE_32F || scale_type != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *product = new cublasLtMatmulDescOpaque_t;
  new (*product) Product;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(const cublasLtMatmulDesc_t product) {
  delete product;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  auto& p = As<Product>(product);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Take(&p.transposes[0], value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Take(&p.transposes[1], value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Take(&p.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return Take(&p.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return Take(&p.bias_type, value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  new (*preference) Preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(const cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t bytes) {
  auto& p = As<Preference>(preference);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return Take(&p.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return Take(&p.reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return Take(&p.alignments[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
                                              int wanted, cublasLtMatmulHeuristicResult_t* choices, int* found) {
  const auto& p = As<Product>(product);
  const auto &la = As<Layout>(a), &lb = As<Layout>(b), &lc = As<Layout>(c), &ld = As<Layout>(d);
  const auto& preferred = As<Preference>(preference);
  *found = 0;
  const bool with_bias = p.epilogue == CUBLASLT_EPILOGUE_BIAS;
  if ((!with_bias && p.epilogue != CUBLASLT_EPILOGUE_DEFAULT) || wanted < 1 || la.type != lb.type ||
      lc.type != ld.type || (la.type == CUDA_R_32F && ld.type != CUDA_R_32F) ||
      (with_bias && p.bias_type != -1 && p.bias_type != ld.type)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (preferred.workspace < kWorkspace) return CUBLAS_STATUS_NOT_SUPPORTED;
  *found = kAlgorithms.Offered(wanted);
  for (int i = 0; i < *found; ++i) {
    Algorithm algorithm;
    std::memset(&algorithm, 0, sizeof(algorithm));  // its padding, too: algorithms are compared by their bytes
    algorithm.magic = kMagic;
    algorithm.number = i;
    std::memcpy(algorithm.alignments, preferred.alignments, sizeof(preferred.alignments));
    algorithm.alignments[4] = AlignmentOf(p.bias);
    choices[i] = {};
    std::memcpy(&choices[i].algo, &algorithm, sizeof(algorithm));
    choices[i].workspaceSize = kWorkspace;
    choices[i].state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const auto& p = As<Product>(product);
  Algorithm algorithm;
  std::memcpy(&algorithm, algo, sizeof(algorithm));
  const bool with_bias = p.epilogue == CUBLASLT_EPILOGUE_BIAS;
  const void* const operands[] = {a, b, c, d, with_bias ? p.bias : nullptr};
  for (size_t i = 0; i < std::size(operands); ++i) {
    if (!IsAligned(operands[i], algorithm.alignments[i])) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const auto matrix = [](const void* data, cublasLtMatrixLayout_t layout) {
    return temper::ColumnMajorMatrix{As<Layout>(layout), const_cast<void*>(data)};
  };
  const int32_t d_type = As<Layout>(d_layout).type;
  const int64_t d_rows = As<Layout>(d_layout).rows;
  const temper::ColumnMajorProduct multiply = {
      .alpha = *static_cast<const float*>(alpha),
      .beta = *static_cast<const float*>(beta),
      .transpose_a = p.transposes[0] == CUBLAS_OP_T,
      .transpose_b = p.transposes[1] == CUBLAS_OP_T,
      .a = matrix(a, a_layout),
      .b = matrix(b, b_layout),
      .c = matrix(c, c_layout),
      .d = matrix(d, d_layout),
      .bias = {{d_type, d_rows, 1, d_rows}, with_bias ? const_cast<void*>(p.bias) : nullptr}};
  if (algorithm.magic != kMagic || workspace == nullptr || workspace_bytes < kWorkspace ||
      !IsAligned(workspace, kWorkspaceAlignment) || (with_bias && p.bias == nullptr) || !multiply.valid() ||
      stream == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const auto& handle_of_stream = *reinterpret_cast<const ApartStreamHandle*>(stream);
  auto* const enqueued = new Enqueued{multiply, algorithm.number, handle_of_stream};
  // A recording runs it again and again, so it must not change its arguments.
  handle_of_stream.enqueue(
      handle_of_stream.stream, [](void* argument) { return Enqueued(*static_cast<const Enqueued*>(argument)).Run(); },
      [](void* argument) { delete static_cast<Enqueued*>(argument); }, enqueued);
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
