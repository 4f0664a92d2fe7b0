// row_squares: a w^T and a a^T as matrix products, [R, O] and [R, R] in f32; then b, transposed, goes with both, a few
// of w's rows at a time.
#include <algorithm>
#include <array>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/products/gemm.h"
#include "base/team.h"

namespace temper {
namespace {

// Rows of w that a thread takes at a time: of ranks up to 64, their columns of both operands stay in L1.
constexpr int64_t kRowsAtOnce = 64;

template <class T>
class RowSquaresKernel final : public Kernel {
 public:
  RowSquaresKernel(const KernelSpec& spec, Isa isa)
      : R_(spec.inputs[0].shape[0]),
        I_(spec.inputs[0].shape[1]),
        O_(spec.inputs[1].shape[0]),
        threads_(spec.threads),
        acc_(spec.attributes.Flag("acc")),
        scale_(static_cast<float>(spec.attributes.Double("scale"))) {
    const GemmShape by_a = {.m = R_, .n = R_, .k = I_, .dtype = spec.inputs[0].dtype};
    GemmShape by_w = by_a;
    by_w.n = O_;
    by_w.b_packed = spec.inputs[1].packed();
    by_w_ = Gemm(by_w, threads_, isa);
    by_a_ = Gemm(by_a, threads_, isa);
    const Bytes needed = ProductBytes() + std::max(by_w_.workspace(), by_a_.workspace());
    TEMPER_CHECK(needed <= spec.workspace) << "row_squares needs " << needed.v << " bytes of " << spec.workspace.v;
    const TensorType& w = spec.inputs[1];
    w_.a_stride = I_;
    w_.b_stride = w.packed()            ? PackedPanels(w.layout, O_, I_).panel_bytes()
                  : w.dtype.quantised() ? w.dtype.RowBytes(I_)
                                        : I_;
    w_.b_format = w.dtype;
    w_.b_columns = I_;
    w_.output.out_dtype = DType::kF32;
    a_ = w_;
    a_.b_stride = I_;
    a_.b_format = spec.inputs[0].dtype;
    w_.output.out_stride = w_.output.acc_stride = O_;
    a_.output.out_stride = a_.output.acc_stride = R_;
  }

  Status Run(const KernelArgs& args) override {
    auto* const products_RO = reinterpret_cast<float*>(args.workspace);
    auto* const b_RO = reinterpret_cast<float*>(args.workspace + OperandBytes().v);
    auto* const gram_RR = reinterpret_cast<float*>(args.workspace + 2 * OperandBytes().v);
    std::byte* const scratch = args.workspace + ProductBytes().v;
    Multiply(by_w_, w_, args.inputs[0], args.inputs[1], products_RO, scratch);
    Multiply(by_a_, a_, args.inputs[0], args.inputs[0], gram_RR, scratch);
    const T* const b_OR = In<T>(args, 2);
    const float* const acc_O = acc_ ? In<float>(args, 3) : nullptr;
    float* const q_O = Out<float>(args, 0);
    ParallelBlocks(threads_, O_, kRowsAtOnce, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        for (int64_t r = 0; r < R_; ++r) b_RO[r * O_ + o] = ToFloat(b_OR[o * R_ + r]);
      }
      const auto n = static_cast<size_t>(end - begin);
      std::array<float, kRowsAtOnce> more = {}, with_a;
      for (int64_t r = 0; r < R_; ++r) {
        const float* const products = products_RO + r * O_ + begin;
        for (size_t i = 0; i < n; ++i) with_a[i] = 2 * products[i];
        for (int64_t k = 0; k < R_; ++k) {
          const float gram = scale_ * gram_RR[r * R_ + k];
          const float* const b = b_RO + k * O_ + begin;
          for (size_t i = 0; i < n; ++i) with_a[i] += gram * b[i];
        }
        const float* const b = b_RO + r * O_ + begin;
        for (size_t i = 0; i < n; ++i) more[i] += b[i] * with_a[i];
      }
      for (size_t i = 0; i < n; ++i) {
        const int64_t o = begin + static_cast<int64_t>(i);
        q_O[o] = (acc_O == nullptr ? 0 : acc_O[o]) + scale_ * more[i];
      }
    });
    return OkStatus();
  }

 private:
  Bytes OperandBytes() const { return AlignUp(Bytes{R_ * O_ * 4}, 64); }
  Bytes ProductBytes() const { return OperandBytes() * 2 + AlignUp(Bytes{R_ * R_ * 4}, 64); }

  static void Multiply(const Gemm& gemm, GemmOperands operands, const std::byte* a, const std::byte* b, float* out,
                       std::byte* scratch) {
    operands.a = a;
    operands.b = b;
    operands.output.out = out;
    gemm.Run(operands, scratch);
  }

  const int64_t R_, I_, O_;
  const int threads_;
  const bool acc_;
  const float scale_;
  Gemm by_w_, by_a_;
  GemmOperands w_, a_;
};

}  // namespace

std::unique_ptr<Kernel> MakeRowSquares(const KernelSpec& spec, Isa isa) {
  const DType dtype = spec.inputs[0].dtype.compute();
  if (!AllFast({spec.inputs[0], spec.inputs[2]}) || spec.outputs[0].dtype != DType::kF32) return nullptr;
  if (spec.inputs[1].packed() && !TilesOf(dtype, isa).pair_panels) return nullptr;
  return DispatchFloat(
      dtype, [&]<class T>() -> std::unique_ptr<Kernel> { return std::make_unique<RowSquaresKernel<T>>(spec, isa); });
}

}  // namespace temper
