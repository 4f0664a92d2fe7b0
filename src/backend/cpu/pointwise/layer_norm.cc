// layer_norm and its backward.
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/pointwise/row_blocks.h"
#include "backend/cpu/vector/vector_kernels.h"
#include "base/team.h"

namespace temper {
namespace {

template <class T>
typename VectorKernelsOf<T>::LayerNorm LoopsOf(const KernelSpec& spec, Isa isa) {
  const VectorKernelsOf<T>& vectors = VectorsFor<T>(isa);
  return spec.attributes.Flag("plus_one") ? vectors.layer_norm_plus_one : vectors.layer_norm;
}

// How the rows of x are normed. Groups that share their parameters count as rows.
NormedRows LayerRowsOf(const TensorType& w, const TensorType& mean) {
  const int64_t groups = w.shape.rank() == 2 ? w.shape[0] : 1;
  return {mean.shape.elements() / groups, w.shape.columns(), groups};
}

}  // namespace

std::unique_ptr<Kernel> MakeLayerNorm(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0], spec.inputs[1], spec.inputs.back(), spec.outputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int threads = spec.threads;
    const NormedRows all = LayerRowsOf(spec.inputs[1], spec.outputs[1]);
    const int64_t D = all.width, G = all.groups;
    const double eps = spec.attributes.Double("eps");
    const bool shifted = !spec.attributes.Flag("unshifted");
    const auto norm = LoopsOf<T>(spec, isa).forward;
    return MakeKernel([=](const KernelArgs& args) {
      const T *const x = In<T>(args, 0), *const w = In<T>(args, 1), *const b = shifted ? In<T>(args, 2) : nullptr;
      T* const y = Out<T>(args, 0);
      float *const mean = Out<float>(args, 1), *const rstd = Out<float>(args, 2);
      ParallelBlocks(threads, all.rows, kRowsPerRange, [=](int64_t begin, int64_t end) {
        for (int64_t g = 0; g < G; ++g) {
          const int64_t row = begin * G + g;
          norm(x + row * D, w + g * D, shifted ? b + g * D : nullptr, eps, {end - begin, D, G}, y + row * D, mean + row,
               rstd + row);
        }
      });
      return OkStatus();
    });
  });
}

std::unique_ptr<Kernel> MakeLayerNormBackward(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0], spec.inputs[1], spec.inputs[2], spec.outputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int threads = spec.threads;
    const NormedRows all = LayerRowsOf(spec.inputs[2], spec.inputs[3]);
    const int64_t rows = all.rows, D = all.width, G = all.groups;
    const bool acc = spec.attributes.Flag("acc"), grad_w = spec.attributes.Flag("grad_w");
    const bool acc_w = spec.attributes.Flag("acc_w"), grad_b = grad_w && !spec.attributes.Flag("unshifted");
    const auto gradients = LoopsOf<T>(spec, isa).backward;
    TEMPER_CHECK(spec.workspace.v >= (grad_w + grad_b) * PartialRows(rows) * G * D * 4) << spec.workspace.v;
    return MakeKernel([=](const KernelArgs& args) {
      const T *const d_y = In<T>(args, 0), *const x = In<T>(args, 1), *const w = In<T>(args, 2);
      const float *const mean = In<float>(args, 3), *const rstd = In<float>(args, 4);
      const T* const sum = acc ? In<T>(args, 5) : nullptr;
      T* const d_x = Out<T>(args, 0);
      float* const partial_w = reinterpret_cast<float*>(args.workspace);
      float* const partial_b = partial_w + PartialRows(rows) * G * D;
      ParallelBlocks(threads, rows, grad_w ? kSumRowsBlock : kRowsPerRange, [=](int64_t begin, int64_t end) {
        for (int64_t g = 0; g < G; ++g) {
          const int64_t row = begin * G + g, at = row * D, at_partial = (begin / kSumRowsBlock * G + g) * D;
          gradients(d_y + at, x + at, w + g * D, mean + row, rstd + row, sum == nullptr ? nullptr : sum + at,
                    {end - begin, D, G}, d_x + at, grad_w ? partial_w + at_partial : nullptr,
                    grad_b ? partial_b + at_partial : nullptr);
        }
      });
      const VectorKernelsOf<float>& f32 = VectorsFor<float>(isa);
      if (grad_w) {
        SumPartialRows(threads, f32, partial_w, PartialRows(rows), G * D, acc_w ? In<float>(args, 5 + acc) : nullptr,
                       Out<float>(args, 1));
      }
      if (grad_b) {
        SumPartialRows(threads, f32, partial_b, PartialRows(rows), G * D, acc_w ? In<float>(args, 6 + acc) : nullptr,
                       Out<float>(args, 2));
      }
      return OkStatus();
    });
  });
}

}  // namespace temper
