// How a reference kernel sees its operands: any element type as double. Internal to reference/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/communicator.h"
#include "device/kernel.h"
#include "tensor/dtype.h"

namespace temper::reference {

// An operand whose elements read as double and are written with one rounding. Non-owning.
class Operand {
 public:
  Operand(std::byte* data, const TensorType& type)
      : data_(data),
        type_(&type),
        is_f32_rows_(type.dtype == DType::kF32 && !type.packed()),
        is_bf16_rows_(type.dtype == DType::kBF16 && !type.packed()) {}

  // Most of a twin's time goes here.
  double operator[](int64_t i) const {
    if (is_f32_rows_) return reinterpret_cast<const float*>(data_)[i];
    if (is_bf16_rows_) return ToFloat(reinterpret_cast<const bf16*>(data_)[i]);
    return OfAnyType(i);
  }
  int64_t Int(int64_t i) const;           // REQUIRES: an integer dtype
  void Store(int64_t i, double x) const;  // REQUIRES: a floating dtype

  std::byte* data() const { return data_; }
  const TensorType& type() const { return *type_; }
  int64_t rows() const { return type_->shape.rows(); }
  int64_t columns() const { return type_->shape.columns(); }
  int64_t elements() const { return type_->shape.elements(); }

 private:
  double OfAnyType(int64_t i) const;

  std::byte* data_;
  const TensorType* type_;
  bool is_f32_rows_, is_bf16_rows_;
};

// Rounds to bf16 or f16 as if from infinite precision (through f32 with round-to-odd: no double rounding).
bf16 RoundToBF16(double x);
f16 RoundToF16(double x);

// Of `n` elements of each, from a_at and b_at.
double Dot(const Operand& a, int64_t a_at, const Operand& b, int64_t b_at, int64_t n);

// One run of a kernel.
class Call {
 public:
  Call(const KernelSpec& spec, const KernelArgs& args, Exchange* exchange, std::vector<double>& scratch)
      : spec_(spec), args_(args), exchange_(exchange), scratch_(scratch) {}

  Operand In(int i) const { return {args_.inputs[i], spec_.inputs[i]}; }
  Operand Out(int i) const { return {args_.outputs[i], spec_.outputs[i]}; }
  int num_inputs() const { return static_cast<int>(spec_.inputs.size()); }
  int num_outputs() const { return static_cast<int>(spec_.outputs.size()); }
  const std::vector<TensorType>& input_types() const { return spec_.inputs; }
  const Attributes& attributes() const { return spec_.attributes; }
  uint64_t rng_name_hash() const { return args_.rng_name_hash; }
  Exchange* exchange() const { return exchange_; }  // nullptr if the instruction involves only one rank
  // At least `n` doubles of the kernel's own, contents undefined; one such array per run. Allocates on the first run.
  double* Scratch(int64_t n) const {
    if (static_cast<int64_t>(scratch_.size()) < n) scratch_.resize(n);
    return scratch_.data();
  }

 private:
  const KernelSpec& spec_;
  const KernelArgs& args_;
  Exchange* const exchange_;
  std::vector<double>& scratch_;
};

// Each op with a kernel has a function `Status <Name>(const Call& call)` in the file of its name; an error is data out
// of range (a token outside the table). reference.cc alone declares them, by op_list.inc: others need not be compiled
// again when an op is added.

}  // namespace temper::reference
