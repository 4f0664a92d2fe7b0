// One case of an op as a test sees it: operands on the host, run by any kernel table under supervision.
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
  explicit Tensor(const TensorType& type);  // poisoned: NaN, or an absurd integer
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
  bool may_lack_fast_kernel = false;  // the twin may be all there is, e.g. for f64
};

// The case as a kernel is made for it, types and workspace by the op's rules.
KernelSpec SpecOf(const OpCase& op_case, int threads);

// Runs it on poisoned outputs and a poisoned workspace of the size that the op's rule says. Expects success, all guard
// bytes as they were and no input changed. `in_place`: output 0 over the input that the op's rule allows.
std::vector<Tensor> RunOn(KernelTable& kernels, const OpCase& op_case, int threads, bool in_place = false);

// How far element i of output k may be from the twin's, beside the rounding of both to the output's dtype: what the
// fast kernel's f32 arithmetic may lose. The test derives it.
using Bound = std::function<double(int k, int64_t i)>;

// On every instruction set of this machine: there is a fast kernel (from AVX2 on); it agrees with its twin within the
// bound, NaN for NaN; gives the same bits on 1, 2 and 3 threads; and the same bits in place.
void ExpectConforms(const OpCase& op_case, const Bound& bound);

inline constexpr double kU = 0x1.0p-24;      // f32's unit roundoff
inline constexpr double kTiny = 0x1.0p-126;  // its smallest normal number: what underflow may lose
inline constexpr DType kCompute[] = {DType::kF32, DType::kBF16};

}  // namespace temper
