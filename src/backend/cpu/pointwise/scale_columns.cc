// scale_columns and its backward. The factors are made once; then each thread has rows.
#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/pointwise/row_blocks.h"

namespace temper {
namespace {

// factor_O = m / sqrt(q) - less, and 1 / sqrt(q) unless `reciprocal_O` is null.
void MakeFactors(const float* m_O, const float* q_O, int64_t O, float less, float* factor_O, float* reciprocal_O) {
  for (int64_t o = 0; o < O; ++o) {
    const float reciprocal = q_O[o] > 0 ? 1 / std::sqrt(q_O[o]) : 0;
    factor_O[o] = (q_O[o] > 0 ? m_O[o] / std::sqrt(q_O[o]) : 0) - less;
    if (reciprocal_O != nullptr) reciprocal_O[o] = reciprocal;
  }
}

}  // namespace

std::unique_ptr<Kernel> MakeScaleColumns(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0]}) || spec.inputs[1].dtype != DType::kF32) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int threads = spec.threads;
    const int64_t rows = spec.inputs[0].shape[0], O = spec.inputs[0].shape[1];
    const float less = spec.attributes.Flag("minus_one") ? 1.0f : 0.0f;
    TEMPER_CHECK(spec.workspace.v >= O * 4) << spec.workspace.v;
    const auto scale = VectorsFor<T>(isa).scale_columns;
    return MakeKernel([=](const KernelArgs& args) {
      const T* const x = In<T>(args, 0);
      T* const y = Out<T>(args, 0);
      auto* const factor = reinterpret_cast<float*>(args.workspace);
      MakeFactors(In<float>(args, 1), In<float>(args, 2), O, less, factor, nullptr);
      ParallelBlocks(threads, rows, kRowsPerRange, [=](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) scale(x + t * O, factor, y + t * O, O);
      });
      return OkStatus();
    });
  });
}

std::unique_ptr<Kernel> MakeScaleColumnsBackward(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0]}) || spec.inputs[2].dtype != DType::kF32) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int threads = spec.threads;
    const int64_t rows = spec.inputs[0].shape[0], O = spec.inputs[0].shape[1];
    const float less = spec.attributes.Flag("minus_one") ? 1.0f : 0.0f;
    const bool acc = spec.attributes.Flag("acc");
    TEMPER_CHECK(spec.workspace.v >= (2 + PartialRows(rows)) * O * 4) << spec.workspace.v;
    const auto backward = VectorsFor<T>(isa).scale_columns_backward;
    const VectorKernelsOf<float>& sums = VectorsFor<float>(isa);
    return MakeKernel([=, &sums](const KernelArgs& args) {
      const T *const d_y = In<T>(args, 0), *const x = In<T>(args, 1);
      T* const d_x = Out<T>(args, 0);
      auto* const factor = reinterpret_cast<float*>(args.workspace);
      float *const reciprocal = factor + O, *const partial = reciprocal + O;
      MakeFactors(In<float>(args, 2), In<float>(args, 3), O, less, factor, reciprocal);
      ParallelBlocks(threads, rows, kSumRowsBlock, [=](int64_t begin, int64_t end) {
        float* const sum = partial + begin / kSumRowsBlock * O;
        std::fill_n(sum, O, 0.0f);
        for (int64_t t = begin; t < end; ++t) {
          backward(d_y + t * O, x + t * O, factor, reciprocal, d_x + t * O, sum, O);
        }
      });
      SumPartialRows(threads, sums, partial, PartialRows(rows), O, acc ? In<float>(args, 4) : nullptr,
                     Out<float>(args, 1));
      return OkStatus();
    });
  });
}

}  // namespace temper
