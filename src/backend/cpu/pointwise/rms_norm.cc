// rms_norm and its backward.
#include <algorithm>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/pointwise/row_blocks.h"
#include "backend/cpu/vector/vector_kernels.h"
#include "base/team.h"

namespace temper {
namespace {

template <class T>
typename VectorKernelsOf<T>::RmsNorm NormOf(const KernelSpec& spec, Isa isa) {
  const VectorKernelsOf<T>& vectors = VectorsFor<T>(isa);
  return spec.attributes.Flag("plus_one") ? vectors.rms_norm_plus_one : vectors.rms_norm;
}

// How the rows of x are normed. Groups that share their scales count as rows.
NormedRows RowsOf(const KernelSpec& spec, const TensorType& w, const TensorType& rstd) {
  const int64_t groups = std::max<int64_t>(spec.attributes.IntOr("groups", 0), 1);
  return {rstd.shape.elements() / groups, w.shape[0] / groups, groups};
}

}  // namespace

std::unique_ptr<Kernel> MakeRmsNorm(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0], spec.inputs[1], spec.outputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int threads = spec.threads;
    const NormedRows all = RowsOf(spec, spec.inputs[1], spec.outputs[1]);
    const int64_t D = all.width, G = all.groups;
    const double eps = spec.attributes.Double("eps");
    const auto norm = NormOf<T>(spec, isa).forward;
    return MakeKernel([=](const KernelArgs& args) {
      const T *const x = In<T>(args, 0), *const w = In<T>(args, 1);
      T* const y = Out<T>(args, 0);
      float* const rstd = Out<float>(args, 1);
      ParallelBlocks(threads, all.rows, kRowsPerRange, [=](int64_t begin, int64_t end) {
        for (int64_t g = 0; g < G; ++g) {
          const int64_t at = (begin * G + g) * D;
          norm(x + at, w + g * D, eps, {end - begin, D, G}, y + at, rstd + begin * G + g);
        }
      });
      return OkStatus();
    });
  });
}

std::unique_ptr<Kernel> MakeRmsNormBackward(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0], spec.inputs[1], spec.inputs[2], spec.outputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int threads = spec.threads;
    const NormedRows all = RowsOf(spec, spec.inputs[2], spec.inputs[3]);
    const int64_t rows = all.rows, D = all.width, G = all.groups;
    const bool acc = spec.attributes.Flag("acc"), grad_w = spec.attributes.Flag("grad_w");
    const bool acc_w = spec.attributes.Flag("acc_w");
    const auto norm = NormOf<T>(spec, isa).backward;
    TEMPER_CHECK(!grad_w || spec.workspace.v >= PartialRows(rows) * G * D * 4) << spec.workspace.v;
    return MakeKernel([=](const KernelArgs& args) {
      const T *const d_y = In<T>(args, 0), *const x = In<T>(args, 1), *const w = In<T>(args, 2);
      const float* const rstd = In<float>(args, 3);
      const T* const sum = acc ? In<T>(args, 4) : nullptr;
      T* const d_x = Out<T>(args, 0);
      float* const partial = grad_w ? reinterpret_cast<float*>(args.workspace) : nullptr;
      ParallelBlocks(threads, rows, grad_w ? kSumRowsBlock : kRowsPerRange, [=](int64_t begin, int64_t end) {
        for (int64_t g = 0; g < G; ++g) {
          const int64_t at = (begin * G + g) * D;
          norm(d_y + at, x + at, w + g * D, rstd + begin * G + g, sum == nullptr ? nullptr : sum + at,
               {end - begin, D, G}, d_x + at, grad_w ? partial + (begin / kSumRowsBlock * G + g) * D : nullptr);
        }
      });
      if (grad_w) {
        SumPartialRows(threads, VectorsFor<float>(isa), partial, PartialRows(rows), G * D,
                       acc_w ? In<float>(args, 4 + acc) : nullptr, Out<float>(args, 1));
      }
      return OkStatus();
    });
  });
}

}  // namespace temper
