// linears and its two gradients. Operands that lie apart are copied together, then one product is made, and results go
// to their places: copies of the thin operands and of the weights, which are small beside x.
#include <cstring>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/cpu/products/gemm.h"
#include "base/check.h"
#include "graph/named_ops.h"
#include "graph/ops/linears_scratch.h"

namespace temper {
namespace {

struct Dims {
  int64_t T, I, rows;  // rows: of all weights
};

Dims DimsOf(const KernelSpec& spec, size_t n) {
  const bool forward = spec.op == Op::kLinears;
  const Shape& x = forward                     ? spec.inputs[0].shape
                   : spec.op == Op::kLinearsDx ? spec.outputs[0].shape
                                               : spec.inputs[n].shape;
  int64_t rows = 0;
  for (size_t i = 0; i < n; ++i) rows += (forward ? spec.outputs[i] : spec.inputs[i]).shape[1];
  return {x[0], x[1], rows};
}

GemmShape ProductOf(const KernelSpec& spec, const Dims& d) {
  const DType dtype = spec.inputs[0].dtype.compute();
  if (spec.op == Op::kLinears) return {.m = d.T, .n = d.rows, .k = d.I, .dtype = dtype, .out_dtype = dtype};
  if (spec.op == Op::kLinearsDx) {
    return {.m = d.T, .n = d.I, .k = d.rows, .dtype = dtype, .out_dtype = dtype, .b_k_contiguous = false};
  }
  return {.m = d.rows, .n = d.I, .k = d.T, .dtype = dtype, .a_k_contiguous = false, .b_k_contiguous = false};
}

class LinearsKernel final : public Kernel {
 public:
  LinearsKernel(const KernelSpec& spec, Isa isa)
      : op_(spec.op),
        threads_(spec.threads),
        acc_(spec.attributes.Flag("acc")),
        scale_(static_cast<float>(spec.attributes.DoubleOr("scale", 1))),
        n_(2 + spec.attributes.Flag("third")),
        dims_(DimsOf(spec, n_)),
        dtype_(spec.inputs[0].dtype.compute()),
        gemm_(ProductOf(spec, dims_), spec.threads, isa),
        layout_(dims_.T, dims_.I, dims_.rows, dtype_, op_ == Op::kLinearsDw ? DType::kF32 : dtype_, gemm_.workspace()) {
    TEMPER_CHECK(layout_.bytes <= spec.workspace) << ToString(op_) << " " << spec.inputs[0].ToString() << " needs "
                                                  << layout_.bytes.v << " bytes, its rule gives " << spec.workspace.v;
    for (size_t i = 0; i < n_; ++i) {
      columns_.push_back((op_ == Op::kLinears ? spec.outputs[i] : spec.inputs[i]).shape[1]);
    }
  }

  Status Run(const KernelArgs& args) override {
    RunTeam(threads_, [&](TeamMember self) { RunInTeam(args, self); });
    return OkStatus();
  }

 private:
  void RunInTeam(const KernelArgs& args, TeamMember self) const {
    const auto [T, I, rows] = dims_;
    std::byte *const thin = args.workspace, *const weights = args.workspace + layout_.weights.v;
    GemmOperands o = {
        .a = thin, .a_stride = rows, .b = weights, .b_stride = I, .output = {.scale = scale_, .out_dtype = dtype_}};
    if (op_ == Op::kLinears) {
      StackWeights(args.inputs + 1, weights, self);
      o.a = args.inputs[0];
      o.a_stride = I;
      o.output.out = thin;
      o.output.out_stride = rows;
    } else {
      ForThin(args.inputs, thin, self,
              [](std::byte* apart, std::byte* together, size_t n) { std::memcpy(together, apart, n); });
      if (op_ == Op::kLinearsDx) {
        StackWeights(args.inputs + n_, weights, self);
        o.output.out = args.outputs[0];
        o.output.acc = acc_ ? args.inputs[2 * n_] : nullptr;
        o.output.acc_dtype = dtype_;
      } else {
        o.b = args.inputs[n_];
        o.output.out = weights;
        o.output.out_dtype = DType::kF32;
      }
      o.output.out_stride = o.output.acc_stride = I;
    }
    self.Meet();
    gemm_.RunInTeam(o, args.workspace + layout_.product.v, self);
    if (op_ == Op::kLinears) {
      ForThin(args.outputs, thin, self,
              [](std::byte* apart, std::byte* together, size_t n) { std::memcpy(apart, together, n); });
    } else if (op_ == Op::kLinearsDw) {
      AddToGradients(args, reinterpret_cast<const float*>(weights), self);
    }
  }

  // Of `n` items, those of a member.
  struct Range {
    Range(int64_t n, TeamMember self) : begin(n * self.index / self.size), end(n * (self.index + 1) / self.size) {}
    int64_t begin, end;
  };

  void StackWeights(std::byte* const* apart, std::byte* together, TeamMember self) const {
    for (size_t i = 0; i < n_; ++i) {
      const int64_t bytes = columns_[i] * dims_.I * SizeOf(dtype_);
      const Range mine(bytes, self);
      std::memcpy(together + mine.begin, apart[i] + mine.begin, static_cast<size_t>(mine.end - mine.begin));
      together += bytes;
    }
  }

  // body(in the operand, among all side by side, bytes) for each row of each thin operand.
  template <class Body>
  void ForThin(std::byte* const* apart, std::byte* together, TeamMember self, const Body& body) const {
    const Range mine(dims_.T, self);
    for (int64_t t = mine.begin; t < mine.end; ++t) {
      std::byte* row = together + t * dims_.rows * SizeOf(dtype_);
      for (size_t i = 0; i < n_; ++i) {
        const int64_t bytes = columns_[i] * SizeOf(dtype_);
        body(apart[i] + t * bytes, row, static_cast<size_t>(bytes));
        row += bytes;
      }
    }
  }

  void AddToGradients(const KernelArgs& args, const float* sum, TeamMember self) const {
    for (size_t i = 0; i < n_; ++i) {
      float* const out = reinterpret_cast<float*>(args.outputs[i]);
      const float* const acc = acc_ ? reinterpret_cast<const float*>(args.inputs[n_ + 1 + i]) : nullptr;
      const Range mine(columns_[i] * dims_.I, self);
      for (int64_t k = mine.begin; k < mine.end; ++k) out[k] = acc == nullptr ? sum[k] : sum[k] + acc[k];
      sum += columns_[i] * dims_.I;
    }
  }

  const Op op_;
  const int threads_;
  const bool acc_;
  const float scale_;
  const size_t n_;  // weights
  const Dims dims_;
  const DType dtype_;
  const Gemm gemm_;
  const LinearsScratch layout_;
  std::vector<int64_t> columns_;  // of each thin operand: rows of its weight
};

}  // namespace

std::unique_ptr<Kernel> MakeLinears(const KernelSpec& spec, Isa isa) {
  const DType dtype = spec.inputs[0].dtype.compute();
  if (dtype != DType::kF32 && dtype != DType::kBF16) return nullptr;
  return std::make_unique<LinearsKernel>(spec, isa);
}

}  // namespace temper
