// Shape: up to five dims, row-major. A value type without allocation.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/check.h"
#include "base/units.h"
#include "tensor/element_format.h"
#include "tensor/element_layout.h"

namespace temper {

class Shape {
 public:
  // Of what models have: the weight of a convolution over three dims, which exports carry along.
  static constexpr int kMaxRank = 5;

  Shape() = default;  // rank 0: a scalar, one element
  Shape(std::initializer_list<int64_t> dims) {
    TEMPER_CHECK(dims.size() <= kMaxRank) << "rank " << dims.size();
    for (int64_t d : dims) Append(d);
  }

  int rank() const { return rank_; }
  // Size of dim `i`; negative counts from the end.
  int64_t dim(int i) const {
    const int k = i < 0 ? rank_ + i : i;
    TEMPER_CHECK(k >= 0 && k < rank_) << "dim " << i << " of " << ToString();
    return dims_[k];
  }
  int64_t operator[](int i) const { return dim(i); }
  void Append(int64_t d) {
    TEMPER_CHECK(rank_ < kMaxRank && d >= 0) << "dim " << d << " after " << ToString();
    dims_[rank_++] = d;
  }
  void set_dim(int i, int64_t d) { dims_[i] = d; }
  // Number of elements; of the first rank-1 dims (rows) and of the last (columns) when seen as a matrix.
  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[i];
    return n;
  }
  int64_t columns() const { return rank_ == 0 ? 1 : dims_[rank_ - 1]; }
  int64_t rows() const {
    int64_t n = 1;
    for (int i = 0; i < rank_ - 1; ++i) n *= dims_[i];
    return n;
  }

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i) {
      if (a.dims_[i] != b.dims_[i]) return false;
    }
    return true;
  }
  std::string ToString() const;  // "[2048, 768]"

 private:
  int8_t rank_ = 0;
  std::array<int64_t, kMaxRank> dims_{};
};

// A tensor without its memory: format x layout x shape.
struct TensorType {
  ElementFormat dtype = DType::kF32;  // named for what it is for all but frozen weights
  Shape shape;
  ElementLayout layout = ElementLayout::kRowMajor;  // packed: bf16 matrices that only products read (OpRule::packed)
  // What kernels compute with: itself, or the numbers of a quantised or packed one.
  TensorType computed() const { return {dtype.compute(), shape}; }
  bool packed() const { return layout != ElementLayout::kRowMajor; }
  Bytes bytes() const { return packed() ? PackedBytes() : Bytes{shape.rows() * dtype.RowBytes(shape.columns())}; }
  std::string ToString() const;  // "bf16[2048, 768]", "bf16.row_pairs[2048, 768]"
  friend bool operator==(const TensorType&, const TensorType&) = default;

 private:
  Bytes PackedBytes() const;
};

}  // namespace temper
