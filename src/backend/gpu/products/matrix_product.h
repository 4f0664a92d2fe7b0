// Matrix products by vendors' libraries: out[m, n] = scale * sum over k of A[m, k] B[n, k] + bias[n] + acc[m, n], f32
// or bf16 with f32 sums and one rounding at the end. The contract between the kernels that consist of products (linear,
// linear_cross_entropy) and the library that computes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "base/units.h"
#include "device/product_choices.h"
#include "tensor/dtype.h"

namespace temper::gpu {

struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::kF32;  // of A and B
  DType out_dtype = DType::kF32;
  bool a_k_contiguous = true;  // A[m, k] is at m * k + k, else at k * m + m
  bool b_k_contiguous = true;  // the same of B[n, k]
  bool acc = false;            // of out's dtype; may be out itself
  bool bias = false;           // of A's dtype
  double scale = 1;
};

// "[512, 4096] x [14336, 4096] of bf16 into bf16, a by rows, b by rows, bias, acc": all but the scale, which no
// algorithm depends on.
std::string NameOf(const ProductShape& shape);

struct ProductOperands {
  const std::byte *a, *b;
  const std::byte *acc, *bias;  // nullptr where the shape has none
  std::byte* out;
};

// One planned product. Enqueues on the stream that its maker is bound to; allocates nothing, scratch is its maker's.
class MatrixProduct {
 public:
  virtual ~MatrixProduct() = default;
  virtual Status Run(const ProductOperands& operands) = 0;
};

class ProductTimer;

class MatrixProducts {
 public:
  virtual ~MatrixProducts() = default;
  // kUnsupported if the library has no such product within its scratch. REQUIRES: m, n > 0; k may be 0.
  virtual Result<std::unique_ptr<MatrixProduct>> Make(const ProductShape& shape) = 0;
  // Chooses the algorithms of all products that it has made and that still exist (product_algorithms.h). Does nothing
  // where each has one.
  virtual Status Choose(ProductTimer& timer, ProductAlgorithms* algorithms, ProductTiming* done) {
    (void)timer, (void)algorithms, (void)done;
    return OkStatus();
  }
};

}  // namespace temper::gpu
