// One test case of an op: operands on the host; any kernel table runs it, with checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/isa.h"
#include "device/kernel.h"
#include "graph/rule.h"

namespace temper {

// An owning tensor between guard bytes, 64-byte aligned. Elements read and write as double (floats) or int64_t.
class Tensor {
 public:
  explicit Tensor(const TensorType& type);  // poisoned: NaN, or an invalid integer
  Tensor(const Tensor& other);
  Tensor(Tensor&&) = default;
  Tensor& operator=(Tensor&&) = default;
  ~Tensor();

  // Uniform in [-scale, scale], rounded to the dtype. The same numbers for the same seed.
  static Tensor Random(const TensorType& type, uint64_t seed, double scale = 1);
  static Tensor Of(const TensorType& type, const std::vector<double>& values);
  static Tensor Ints(const std::vector<int32_t>& values);

  double operator[](int64_t i) const;
  void Set(int64_t i, double x);
  const TensorType& type() const { return type_; }
  std::byte* data() { return memory_.get() + begin_; }
  const std::byte* data() const { return memory_.get() + begin_; }
  bool GuardsIntact() const;
  bool SameBytes(const Tensor& other) const;

 private:
  TensorType type_;
  size_t begin_ = 0, bytes_ = 0;
  std::unique_ptr<std::byte[]> memory_;
};

struct OpCase {
  Op op;
  std::vector<Tensor> inputs;
  Attributes attributes;
  uint64_t rng_name_hash = 0;
  bool may_lack_fast_kernel = false;  // there may be only the twin, e.g. for f64
};

// The specification of the case's kernel, with types and workspace by the op's rules.
KernelSpec SpecOf(const OpCase& op_case, int threads);

// Runs it on poisoned outputs and a poisoned workspace of the size that the op's rule gives. Expects success, unchanged
// guard bytes and unchanged inputs. `in_place`: output 0 overwrites the input that the op's rule allows.
std::vector<Tensor> RunOn(KernelTable& kernels, const OpCase& op_case, int threads, bool in_place = false);

// The allowed difference between element i of output k and the twin's, besides the rounding of both to the output's
// dtype: the error of the fast kernel's f32 arithmetic. The test derives it.
using Bound = std::function<double(int k, int64_t i)>;

// On every instruction set of this machine: there is a fast kernel (from AVX2 on); it agrees with its twin within the
// bound, NaN for NaN, and gives the same bits on 1, 2 and 3 threads and in place.
void ExpectConforms(const OpCase& op_case, const Bound& bound);

inline constexpr double kU = 0x1.0p-24;      // f32's unit roundoff
inline constexpr double kTiny = 0x1.0p-126;  // its smallest normal number: the error of an underflow
inline constexpr DType kCompute[] = {DType::kF32, DType::kBF16};

}  // namespace temper
