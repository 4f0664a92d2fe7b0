// Matrix products by a library with cuBLASLt's interface, such as AMD's hipBLASLt, planned once. A product uses the
// algorithm that the library ranks first until ChooseAlgorithms (product_algorithms.h) picks one by time. `Lt` is what
// differs: its types, its constants and pointers to its functions, under the names used here (hardware/blas_lt.cc,
// hipblas_lt.cc).
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/gpu/products/product_algorithms.h"
#include "base/log.h"

namespace temper::gpu {

inline constexpr int kAskedAlgorithms = 8;                 // of the library, for each product
inline constexpr uintptr_t kProductOperandAlignment = 64;  // of every address of an arena (program/program.h)

// Success in both.
template <class Lt, class Code>
Status StatusOfLt(Code code, const char* what) {
  const int number = static_cast<int>(code);
  if (number == 0) return OkStatus();
  return IoError(std::string(Lt::kName) + ": " + what + " failed with status " + std::to_string(number));
}

// The library, and what products are bound to.
template <class Lt>
struct LtContext {
  const Lt& lt;
  const typename Lt::Handle handle;
  const typename Lt::Stream stream;
  const std::span<std::byte> scratch;
  std::vector<ProductWithAlgorithms*> products;  // those that exist
};

// The library is column-major: it computes out^T[n, m] = B[n, k] A^T[k, m], our B first.
template <class Lt>
class LtProduct final : public ProductWithAlgorithms {
 public:
  // `context` outlives it.
  LtProduct(LtContext<Lt>& context, const ProductShape& shape)
      : context_(context), lt_(context.lt), shape_(shape), scale_(static_cast<float>(shape.scale)) {
    context_.products.push_back(this);
  }
  ~LtProduct() override {
    std::erase(context_.products, this);
    if (product_ != nullptr) (void)lt_.drop_product(product_);
    for (const typename Lt::Layout layout : {b_, a_, out_}) {
      if (layout != nullptr) (void)lt_.drop_layout(layout);
    }
  }

  // kUnsupported: the library has no such product.
  Status Plan() {
    const auto transposed = [](bool yes) { return yes ? Lt::kTransposed : Lt::kAsItIs; };
    const auto in = TypeOf(shape_.dtype);
    TEMPER_RETURN_IF_ERROR(Check(lt_.make_product(&product_, Lt::kF32Sums, Lt::kF32), "a product"));
    TEMPER_RETURN_IF_ERROR(Set(Lt::kOfFirst, transposed(shape_.b_k_contiguous)));
    TEMPER_RETURN_IF_ERROR(Set(Lt::kOfSecond, transposed(!shape_.a_k_contiguous)));
    if (shape_.bias) {
      TEMPER_RETURN_IF_ERROR(Set(Lt::kEpilogue, Lt::kAddBias));
      TEMPER_RETURN_IF_ERROR(Set(Lt::kBiasType, in));
      // Never dereferenced, but aligned like the biases to come: cuBLASLt derives their alignment from it, and
      // hipBLASLt before ROCm 6.2 has no kernel without one (its pull request 748).
      TEMPER_RETURN_IF_ERROR(Set(Lt::kBiasPointer, reinterpret_cast<const std::byte*>(kProductOperandAlignment)));
    }
    TEMPER_RETURN_IF_ERROR(MakeLayout(&b_, in, shape_.n, shape_.k, shape_.b_k_contiguous));
    TEMPER_RETURN_IF_ERROR(MakeLayout(&a_, in, shape_.m, shape_.k, shape_.a_k_contiguous));
    TEMPER_RETURN_IF_ERROR(MakeLayout(&out_, TypeOf(shape_.out_dtype), shape_.n, shape_.m, false));
    return Ask();
  }

  const ProductShape& shape() const override { return shape_; }
  const std::vector<std::string>& offered() const override { return offered_; }
  void Use(size_t algorithm) override { algorithm_ = &algorithms_.at(algorithm); }

  Status Run(const ProductOperands& o) override {
    if (shape_.bias) TEMPER_RETURN_IF_ERROR(Set(Lt::kBiasPointer, o.bias));
    const float beta = shape_.acc ? 1.0f : 0.0f;
    const std::span<std::byte> scratch = context_.scratch;
    return Check(lt_.matmul(context_.handle, product_, &scale_, o.b, b_, o.a, a_, &beta, shape_.acc ? o.acc : o.out,
                            out_, o.out, out_, algorithm_, scratch.data(), scratch.size(), context_.stream),
                 "a product");
  }

 private:
  static auto TypeOf(DType t) { return t == DType::kF32 ? Lt::kF32 : Lt::kBf16; }
  template <class Code>
  static Status Check(Code code, const char* what) {
    return StatusOfLt<Lt>(code, what);
  }
  template <class Attribute, class T>
  Status Set(Attribute attribute, const T& value) {
    return Check(lt_.set_product(product_, attribute, &value, sizeof(value)), "an attribute");
  }
  // Of a matrix that is [lines, k] row by row where `by_rows`, else [k, lines].
  template <class Type>
  Status MakeLayout(typename Lt::Layout* layout, Type type, int64_t lines, int64_t k, bool by_rows) {
    const int64_t rows = by_rows ? k : lines, columns = by_rows ? lines : k;
    return Check(lt_.make_layout(layout, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), rows),
                 "a layout");
  }
  // The library's algorithms, best first.
  Status Ask() {
    typename Lt::Preference preference = nullptr;
    TEMPER_RETURN_IF_ERROR(Check(lt_.make_preference(&preference), "a preference"));
    Status status = lt_.Prefer(preference, context_.scratch.size());
    std::array<typename Lt::Choice, kAskedAlgorithms> choices = {};
    int found = 0;
    if (status.ok()) {
      const auto code = lt_.choose(context_.handle, product_, b_, a_, out_, out_, preference, kAskedAlgorithms,
                                   choices.data(), &found);
      if (code == Lt::kNotSupported) {
        found = 0;
      } else {
        status = Check(code, "a choice");
      }
    }
    (void)lt_.drop_preference(preference);
    TEMPER_RETURN_IF_ERROR(status);
    for (int i = 0; i < found; ++i) {
      const auto& choice = choices[static_cast<size_t>(i)];
      if (static_cast<int>(choice.state) == 0) Offer(choice.algo);
    }
    if (algorithms_.empty()) {
      return Unsupported(
          fmt::format("{} has no product {} within {} bytes", Lt::kName, NameOf(shape_), context_.scratch.size()));
    }
    Use(0);
    return OkStatus();
  }
  void Offer(const typename Lt::Algorithm& algorithm) {
    std::array<unsigned char, sizeof(algorithm)> bytes;
    std::memcpy(bytes.data(), &algorithm, sizeof(algorithm));
    std::string text;
    for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
    algorithms_.push_back(algorithm);
    offered_.push_back(std::move(text));
  }

  LtContext<Lt>& context_;
  const Lt& lt_;
  const ProductShape shape_;
  const float scale_;
  typename Lt::Product product_ = nullptr;
  typename Lt::Layout b_ = nullptr, a_ = nullptr, out_ = nullptr;
  std::vector<typename Lt::Algorithm> algorithms_;
  std::vector<std::string> offered_;
  const typename Lt::Algorithm* algorithm_ = nullptr;  // of algorithms_
};

// `lt` outlives it and what it makes, and so do `stream` and `scratch`. Owns `handle`. Outlives what it makes.
template <class Lt>
class LtProducts final : public MatrixProducts {
 public:
  LtProducts(const Lt& lt, typename Lt::Handle handle, typename Lt::Stream stream, std::span<std::byte> scratch)
      : context_{lt, handle, stream, scratch, {}} {}
  ~LtProducts() override { (void)context_.lt.destroy(context_.handle); }
  Result<std::unique_ptr<MatrixProduct>> Make(const ProductShape& shape) override {
    for (const DType t : {shape.dtype, shape.out_dtype}) {
      if (t != DType::kF32 && t != DType::kBF16) return Unsupported("a matrix product in " + std::string(ToString(t)));
    }
    if (shape.k == 0) return Unsupported("a matrix product over no terms");
    auto product = std::make_unique<LtProduct<Lt>>(context_, shape);
    TEMPER_RETURN_IF_ERROR(product->Plan());
    return std::unique_ptr<MatrixProduct>(std::move(product));
  }
  Status Choose(ProductTimer& timer, ProductAlgorithms* algorithms, ProductTiming* done) override {
    return ChooseAlgorithms(context_.products, timer, algorithms, done);
  }

 private:
  LtContext<Lt> context_;
};

// By the library if it has a kernel, else by another maker, which is slower: a line says so.
class ProductsOrElse final : public MatrixProducts {
 public:
  ProductsOrElse(std::unique_ptr<MatrixProducts> library, std::unique_ptr<MatrixProducts> otherwise)
      : library_(std::move(library)), otherwise_(std::move(otherwise)) {}
  Result<std::unique_ptr<MatrixProduct>> Make(const ProductShape& shape) override {
    auto made = library_->Make(shape);
    if (made.ok() || made.status().code() != StatusCode::kUnsupported) return made;
    auto other = otherwise_->Make(shape);
    if (other.ok()) LogWarning(made.status().message() + ": Temper's own kernel does it, far from the peak");
    return other;
  }
  Status Choose(ProductTimer& timer, ProductAlgorithms* algorithms, ProductTiming* done) override {
    return library_->Choose(timer, algorithms, done);
  }

 private:
  const std::unique_ptr<MatrixProducts> library_, otherwise_;
};

}  // namespace temper::gpu
