// A library with those of hipBLASLt's functions that are used, for tests: it multiplies in the host's memory, at once,
// written from the meaning of the interface (column-major, D = alpha op(A) op(B) + beta C + bias). It has no kernel of
// products with 7 columns, as libraries have none of some, none where the workspace is less than 1 KiB, and says of
// products with 11 that they are not supported. Of those with 13 its choice is one that it calls invalid; and as
// ROCm 6.0's it has no kernel for a bias that is nowhere.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "tensor/dtype.h"

namespace {

constexpr int kSuccess = 0, kInvalidValue = 3, kNotSupported = 7;
constexpr int64_t kMissingColumns = 7, kUnsupportedColumns = 11, kInvalidColumns = 13;
constexpr uint64_t kLeastWorkspace = 1024;

struct Layout {
  int32_t type;
  int64_t rows, columns, leading;
};
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
  uint8_t data[16];
  size_t most_workspace;
};
struct Choice {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

float Get(const void* at, int32_t type, int64_t i) {
  return type == 14 ? temper::ToFloat(static_cast<const temper::bf16*>(at)[i]) : static_cast<const float*>(at)[i];
}
void Put(void* at, int32_t type, int64_t i, float x) {
  if (type == 14) {
    static_cast<temper::bf16*>(at)[i] = temper::ToBF16(x);
  } else {
    static_cast<float*>(at)[i] = x;
  }
}
bool IsKnown(int32_t type) {
  return type == 0 || type == 14;
}

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
  if (!IsKnown(type) || leading < static_cast<int64_t>(rows)) return kInvalidValue;
  *layout = new Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), leading};
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
  *found = has && wanted > 0 ? 1 : 0;
  if (*found > 0) {
    choices[0] = {.algorithm = {.data = {42}, .most_workspace = kLeastWorkspace}, .workspace = kLeastWorkspace};
    if (static_cast<Layout*>(d)->columns == kInvalidColumns) choices[0].state = kInvalidValue;
  }
  return kSuccess;
}
int hipblasLtMatmul(void* handle, void* product, const void* alpha, const void* a, void* a_layout, const void* b,
                    void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                    const Algorithm* algorithm, void* workspace, size_t workspace_bytes, void*) {
  const auto& p = *static_cast<Product*>(product);
  const Layout &la = *static_cast<Layout*>(a_layout), &lb = *static_cast<Layout*>(b_layout),
               &lc = *static_cast<Layout*>(c_layout), &ld = *static_cast<Layout*>(d_layout);
  const bool ta = p.transposes[0] == 112, tb = p.transposes[1] == 112;
  const int64_t depth = ta ? la.rows : la.columns;
  if (handle == nullptr || algorithm->data[0] != 42 || workspace == nullptr || workspace_bytes < kLeastWorkspace ||
      ld.rows != (ta ? la.columns : la.rows) || ld.columns != (tb ? lb.rows : lb.columns) ||
      depth != (tb ? lb.columns : lb.rows) || lc.rows != ld.rows || lc.columns != ld.columns || lc.type != ld.type) {
    return kInvalidValue;
  }
  float scale = 0, keep = 0;
  std::memcpy(&scale, alpha, sizeof(scale));
  std::memcpy(&keep, beta, sizeof(keep));
  for (int64_t j = 0; j < ld.columns; ++j) {
    for (int64_t i = 0; i < ld.rows; ++i) {
      float sum = 0;
      for (int64_t k = 0; k < depth; ++k) {
        sum += Get(a, la.type, ta ? k + i * la.leading : i + k * la.leading) *
               Get(b, lb.type, tb ? j + k * lb.leading : k + j * lb.leading);
      }
      sum *= scale;
      if (keep != 0) sum += keep * Get(c, lc.type, i + j * lc.leading);
      if (p.epilogue == 4) sum += Get(p.bias, p.bias_type, i);
      Put(d, ld.type, i + j * ld.leading, sum);
    }
  }
  return kSuccess;
}

}  // extern "C"
