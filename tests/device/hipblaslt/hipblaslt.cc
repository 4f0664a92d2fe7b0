// A stand-in for the hipBLASLt functions that are used, for tests: it multiplies in the host's memory, at once. Like
// real libraries it lacks some kernels: it has none for products with 7 columns or for a workspace of less than 1 KiB,
// and says that those with 11 are not supported. For those with 13 it marks every choice as invalid. As in ROCm
// 6.0 it has no kernel for a bias without an address. With TEST_HIPBLASLT_FASTEST=k it offers eight algorithms
// (offered_algorithms.h).
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "../offered_algorithms.h"

namespace {

constexpr int kSuccess = 0, kInvalidValue = 3, kNotSupported = 7;
constexpr int64_t kMissingColumns = 7, kUnsupportedColumns = 11, kInvalidColumns = 13;
constexpr uint64_t kLeastWorkspace = 1024;
constexpr uint8_t kMagic = 42;
constexpr temper::OfferedAlgorithms kAlgorithms("TEST_HIPBLASLT_FASTEST");

using Layout = temper::ColumnMajorLayout;
struct Product {
  int32_t sums = 0, scale_type = 0;
  int32_t transposes[2] = {111, 111};
  uint32_t epilogue = 1;
  const void* bias = nullptr;
  int32_t bias_type = 0;
};
struct Preference {
  uint64_t workspace = 0;
};
struct Algorithm {
  uint8_t data[16];  // kMagic, its number
  size_t most_workspace;
};
struct Choice {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

}  // namespace

extern "C" {

int hipblasLtCreate(void** handle) {
  *handle = new int(1);
  return kSuccess;
}
int hipblasLtDestroy(void* handle) {
  delete static_cast<int*>(handle);
  return kSuccess;
}
int hipblasLtGetVersion(void* handle, int* version) {
  const char* const pretended = std::getenv("TEST_HIPBLASLT_VERSION");
  *version = pretended != nullptr ? std::atoi(pretended) : 1000;
  return handle != nullptr ? kSuccess : kInvalidValue;
}
int hipblasLtMatrixLayoutCreate(void** layout, int32_t type, uint64_t rows, uint64_t columns, int64_t leading) {
  const Layout made = {type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), leading};
  if (!made.valid()) return kInvalidValue;
  *layout = new Layout(made);
  return kSuccess;
}
int hipblasLtMatrixLayoutDestroy(void* layout) {
  delete static_cast<Layout*>(layout);
  return kSuccess;
}
int hipblasLtMatmulDescCreate(void** product, int32_t sums, int32_t scale_type) {
  if (sums != 2 || scale_type != 0) return kInvalidValue;
  *product = new Product{.sums = sums, .scale_type = scale_type};
  return kSuccess;
}
int hipblasLtMatmulDescDestroy(void* product) {
  delete static_cast<Product*>(product);
  return kSuccess;
}
int hipblasLtMatmulDescSetAttribute(void* product, int attribute, const void* value, size_t bytes) {
  auto& p = *static_cast<Product*>(product);
  const auto take = [&](auto* to) {
    if (bytes != sizeof(*to)) return kInvalidValue;
    std::memcpy(to, value, bytes);
    return kSuccess;
  };
  switch (attribute) {
    case 0:
    case 1:
      return take(&p.transposes[attribute]);
    case 2:
      return take(&p.epilogue);
    case 3:
      return take(&p.bias);
    case 4:
      return take(&p.bias_type);
    default:
      return kInvalidValue;
  }
}
int hipblasLtMatmulPreferenceCreate(void** preference) {
  *preference = new Preference;
  return kSuccess;
}
int hipblasLtMatmulPreferenceDestroy(void* preference) {
  delete static_cast<Preference*>(preference);
  return kSuccess;
}
int hipblasLtMatmulPreferenceSetAttribute(void* preference, int attribute, const void* value, size_t bytes) {
  if (attribute != 1 || bytes != sizeof(uint64_t)) return kInvalidValue;
  std::memcpy(&static_cast<Preference*>(preference)->workspace, value, bytes);
  return kSuccess;
}
int hipblasLtMatmulAlgoGetHeuristic(void*, void* product, void*, void*, void*, void* d, void* preference, int wanted,
                                    Choice* choices, int* found) {
  if (static_cast<Layout*>(d)->columns == kUnsupportedColumns) return kNotSupported;
  const auto& p = *static_cast<Product*>(product);
  const bool has = static_cast<Layout*>(d)->columns != kMissingColumns && (p.epilogue != 4 || p.bias != nullptr) &&
                   static_cast<Preference*>(preference)->workspace >= kLeastWorkspace;
  *found = has ? kAlgorithms.Offered(wanted) : 0;
  for (int i = 0; i < *found; ++i) {
    choices[i] = {.algorithm = {.data = {kMagic, static_cast<uint8_t>(i)}, .most_workspace = kLeastWorkspace},
                  .workspace = kLeastWorkspace};
    if (static_cast<Layout*>(d)->columns == kInvalidColumns) choices[i].state = kInvalidValue;
  }
  return kSuccess;
}
int hipblasLtMatmul(void* handle, void* product, const void* alpha, const void* a, void* a_layout, const void* b,
                    void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                    const Algorithm* algorithm, void* workspace, size_t workspace_bytes, void*) {
  const auto& p = *static_cast<Product*>(product);
  const auto matrix = [](const void* data, void* layout) {
    return temper::ColumnMajorMatrix{*static_cast<Layout*>(layout), const_cast<void*>(data)};
  };
  const temper::ColumnMajorProduct multiply = {
      .alpha = *static_cast<const float*>(alpha),
      .beta = *static_cast<const float*>(beta),
      .transpose_a = p.transposes[0] == 112,
      .transpose_b = p.transposes[1] == 112,
      .a = matrix(a, a_layout),
      .b = matrix(b, b_layout),
      .c = matrix(c, c_layout),
      .d = matrix(d, d_layout),
      .bias = {{.type = p.bias_type}, p.epilogue == 4 ? const_cast<void*>(p.bias) : nullptr}};
  if (handle == nullptr || algorithm->data[0] != kMagic || workspace == nullptr || workspace_bytes < kLeastWorkspace ||
      !multiply.valid()) {
    return kInvalidValue;
  }
  if (kAlgorithms.IsSlow(algorithm->data[1])) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  kAlgorithms.Compute(algorithm->data[1], multiply);
  return kSuccess;
}

}  // extern "C"
