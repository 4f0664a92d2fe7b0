// muon: a pass that makes the momentum, five steps of three products each, and a pass that moves the weight.
#include "graph/ops/muon_workspace.h"

#include <cmath>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/muon_step.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/products/gemm.h"
#include "backend/cpu/vector/vector_kernels.h"
#include "base/team.h"

namespace temper {
namespace {

template <class W>
class MuonKernel final : public Kernel {
 public:
  MuonKernel(const KernelSpec& spec, Isa isa)
      : attributes_(spec.attributes),
        of_(spec.inputs[0].shape),
        threads_(spec.threads),
        gram_(
            {.m = of_.side, .n = of_.side, .k = of_.inner, .a_k_contiguous = of_.wide(), .b_k_contiguous = of_.wide()},
            threads_, isa),
        square_({.m = of_.side, .n = of_.side, .k = of_.side}, threads_, isa),
        next_({.m = of_.rows, .n = of_.columns, .k = of_.side, .b_k_contiguous = !of_.wide()}, threads_, isa),
        sum_squares_(VectorsFor<float>(isa).sum_squares),
        from_f32_(VectorsFor<W>(isa).from_f32),
        with_weight_(attributes_.Flag("weight")) {
    const Bytes most = std::max({gram_.workspace(), square_.workspace(), next_.workspace()});
    TEMPER_CHECK(of_.product + most <= spec.workspace) << "muon of " << spec.inputs[0].ToString();
  }

  Status Run(const KernelArgs& args) override {
    const int64_t n = of_.rows * of_.columns;
    if (n == 0) return OkStatus();
    const MuonScalars s = PrepareMuon(attributes_, of_.rows, of_.columns, In<float>(args, 3), In<double>(args, 4));
    std::byte* const memory = args.workspace;
    auto *x = reinterpret_cast<float*>(memory), *next = reinterpret_cast<float*>(memory + of_.next_x.v);
    Begin(args, s, x, memory);
    for (int step = 0; step < kMuonSteps; ++step) {
      Iterate(x, next, memory);
      std::swap(x, next);
    }
    const float* const master = In<float>(args, 0);
    float* const new_master = Out<float>(args, 0);
    W* const weight = with_weight_ ? Out<W>(args, 2) : nullptr;
    ParallelBlocks(threads_, n, kElementsPerRange, [=, this](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) new_master[i] = s.keep * master[i] + s.minus_step * x[i];
      if (weight != nullptr) from_f32_(new_master + begin, weight + begin, end - begin);
    });
    return OkStatus();
  }

 private:
  // The momentum, and x, of norm 1.
  void Begin(const KernelArgs& args, const MuonScalars& s, float* x, std::byte* memory) const {
    static_assert(kElementsPerRange == MuonWorkspace::kElementsPerSum);
    const int64_t n = of_.rows * of_.columns;
    const float *const gradient = In<float>(args, 1), *const m = In<float>(args, 2);
    float* const new_m = Out<float>(args, 1);
    auto* const sums = reinterpret_cast<double*>(memory + of_.sums.v);
    ParallelBlocks(threads_, n, kElementsPerRange, [=, this](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float g = gradient[i] * s.clip, after = NextMomentum(s, g, m[i]);
        x[i] = LookAhead(s, g, after);
        new_m[i] = after;
      }
      sums[begin / kElementsPerRange] = sum_squares_(x + begin, end - begin);
    });
    double sum = 0;
    for (int64_t i = 0; i * kElementsPerRange < n; ++i) sum += sums[i];
    const float norm = std::max(static_cast<float>(std::sqrt(sum)), kMuonLeastNorm);
    ParallelBlocks(threads_, n, kElementsPerRange, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) x[i] /= norm;
    });
  }

  void Iterate(const float* x, float* next, std::byte* memory) const {
    auto *const p = reinterpret_cast<float*>(memory + of_.gram.v), *const q =
                                                                       reinterpret_cast<float*>(memory + of_.square.v);
    const int64_t side = of_.side;
    const auto multiply = [&](const Gemm& gemm, const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                              float* out, int64_t out_stride, float scale) {
      GemmOperands operands{.a = a, .a_stride = a_stride, .b = b, .b_stride = b_stride};
      operands.output.out = out;
      operands.output.out_stride = operands.output.acc_stride = out_stride;
      operands.output.scale = scale;
      gemm.Run(operands, memory + of_.product.v);
    };
    multiply(gram_, x, of_.columns, x, of_.columns, p, side, 1);
    multiply(square_, p, side, p, side, q, side, kMuonC);  // p is symmetric
    ParallelFor(threads_, side, [=](int64_t row) {
      for (int64_t i = row * side; i < (row + 1) * side; ++i) q[i] += kMuonB * p[i];
      q[row * side + row] += kMuonA;
    });
    if (of_.wide()) {
      multiply(next_, q, side, x, of_.columns, next, of_.columns, 1);
    } else {
      multiply(next_, x, of_.columns, q, side, next, of_.columns, 1);
    }
  }

  const Attributes attributes_;
  const MuonWorkspace of_;
  const int threads_;
  const Gemm gram_, square_, next_;
  double (*const sum_squares_)(const float* g, int64_t n);
  void (*const from_f32_)(const float* x, W* y, int64_t n);
  const bool with_weight_;
};

}  // namespace

std::unique_ptr<Kernel> MakeMuon(const KernelSpec& spec, Isa isa) {
  const DType weight = spec.attributes.Flag("weight") ? spec.outputs.back().dtype.dtype() : DType::kF32;
  if (weight != DType::kF32 && weight != DType::kBF16) return nullptr;
  return DispatchFloat(
      weight, [&]<class W>() -> std::unique_ptr<Kernel> { return std::make_unique<MuonKernel<W>>(spec, isa); });
}

}  // namespace temper
