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

}  // namespace

std::unique_ptr<Kernel> MakeLayerNorm(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0], spec.inputs[1], spec.inputs[2], spec.outputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int threads = spec.threads;
    const int64_t rows = spec.inputs[0].shape.rows(), D = spec.inputs[0].shape.columns();
    const double eps = spec.attributes.Double("eps");
    const auto norm = LoopsOf<T>(spec, isa).forward;
    return MakeKernel([=](const KernelArgs& args) {
      const T *const x = In<T>(args, 0), *const w = In<T>(args, 1), *const b = In<T>(args, 2);
      T* const y = Out<T>(args, 0);
      float *const mean = Out<float>(args, 1), *const rstd = Out<float>(args, 2);
      ParallelBlocks(threads, rows, kRowsPerRange, [=](int64_t begin, int64_t end) {
        norm(x + begin * D, w, b, eps, end - begin, D, y + begin * D, mean + begin, rstd + begin);
      });
      return OkStatus();
    });
  });
}

std::unique_ptr<Kernel> MakeLayerNormBackward(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0], spec.inputs[1], spec.inputs[2], spec.outputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int threads = spec.threads;
    const int64_t rows = spec.inputs[0].shape.rows(), D = spec.inputs[0].shape.columns();
    const bool acc = spec.attributes.Flag("acc"), grad_w = spec.attributes.Flag("grad_w");
    const bool acc_w = spec.attributes.Flag("acc_w");
    const auto gradients = LoopsOf<T>(spec, isa).backward;
    TEMPER_CHECK(!grad_w || spec.workspace.v >= 2 * PartialRows(rows) * D * 4) << spec.workspace.v;
    return MakeKernel([=](const KernelArgs& args) {
      const T *const d_y = In<T>(args, 0), *const x = In<T>(args, 1), *const w = In<T>(args, 2);
      const float *const mean = In<float>(args, 3), *const rstd = In<float>(args, 4);
      const T* const sum = acc ? In<T>(args, 5) : nullptr;
      T* const d_x = Out<T>(args, 0);
      float* const partial_w = reinterpret_cast<float*>(args.workspace);
      float* const partial_b = partial_w + PartialRows(rows) * D;
      ParallelBlocks(threads, rows, grad_w ? kSumRowsBlock : kRowsPerRange, [=](int64_t begin, int64_t end) {
        const int64_t at = begin * D, at_partial = begin / kSumRowsBlock * D;
        gradients(d_y + at, x + at, w, mean + begin, rstd + begin, sum == nullptr ? nullptr : sum + at, end - begin, D,
                  d_x + at, grad_w ? partial_w + at_partial : nullptr, grad_w ? partial_b + at_partial : nullptr);
      });
      if (grad_w) {
        const VectorKernelsOf<float>& f32 = VectorsFor<float>(isa);
        SumPartialRows(threads, f32, partial_w, PartialRows(rows), D, acc_w ? In<float>(args, 5 + acc) : nullptr,
                       Out<float>(args, 1));
        SumPartialRows(threads, f32, partial_b, PartialRows(rows), D, acc_w ? In<float>(args, 6 + acc) : nullptr,
                       Out<float>(args, 2));
      }
      return OkStatus();
    });
  });
}

}  // namespace temper
