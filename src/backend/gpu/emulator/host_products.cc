#include "backend/gpu/emulator/host_products.h"

#include <vector>

namespace temper::gpu {
namespace {

template <class T>
const T* As(const std::byte* p) {
  return reinterpret_cast<const T*>(p);
}

class HostProduct final : public MatrixProduct {
 public:
  explicit HostProduct(const ProductShape& shape) : s_(shape), scale_(static_cast<float>(shape.scale)) {}

  Status Run(const ProductOperands& o) override {
    TEMPER_CHECK((o.acc != nullptr) == s_.acc && (o.bias != nullptr) == s_.bias) << "operands unlike the shape's";
    DispatchFloat(s_.dtype,
                  [&]<class In>() { DispatchFloat(s_.out_dtype, [&]<class Out>() { Multiply<In, Out>(o); }); });
    return OkStatus();
  }

 private:
  template <class In, class Out>
  void Multiply(const ProductOperands& o) const {
    const In *const a = As<In>(o.a), *const b = As<In>(o.b);
    for (int64_t m = 0; m < s_.m; ++m) {
      for (int64_t n = 0; n < s_.n; ++n) {
        float sum = 0;
        for (int64_t k = 0; k < s_.k; ++k) {
          sum += ToFloat(a[s_.a_k_contiguous ? m * s_.k + k : k * s_.m + m]) *
                 ToFloat(b[s_.b_k_contiguous ? n * s_.k + k : k * s_.n + n]);
        }
        const int64_t at = m * s_.n + n;
        sum *= scale_;
        if (s_.bias) sum += ToFloat(As<In>(o.bias)[n]);
        if (s_.acc) sum += ToFloat(As<Out>(o.acc)[at]);
        reinterpret_cast<Out*>(o.out)[at] = FromFloat<Out>(sum);
      }
    }
  }

  const ProductShape s_;
  const float scale_;
};

class Host final : public MatrixProducts {
 public:
  Result<std::unique_ptr<MatrixProduct>> Make(const ProductShape& shape) override {
    for (const DType t : {shape.dtype, shape.out_dtype}) {
      if (t != DType::kF32 && t != DType::kBF16) return Unsupported("a product in " + std::string(ToString(t)));
    }
    return std::unique_ptr<MatrixProduct>(std::make_unique<HostProduct>(shape));
  }
};

}  // namespace

MatrixProducts& HostProducts() {
  static Host host;
  return host;
}

}  // namespace temper::gpu
