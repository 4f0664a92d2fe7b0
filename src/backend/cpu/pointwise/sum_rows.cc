// sum_rows: each column by one thread.
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/pointwise/row_blocks.h"

namespace temper {

std::unique_ptr<Kernel> MakeSumRows(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0]}) || spec.outputs[0].dtype != DType::kF32) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int threads = spec.threads;
    const int64_t rows = spec.inputs[0].shape.rows(), columns = spec.inputs[0].shape.columns();
    const bool acc = spec.attributes.Flag("acc");
    const VectorKernelsOf<T>& vectors = VectorsFor<T>(isa);
    return MakeKernel([=, &vectors](const KernelArgs& args) {
      SumPartialRows(threads, vectors, In<T>(args, 0), rows, columns, acc ? In<float>(args, 1) : nullptr,
                     Out<float>(args, 0));
      return OkStatus();
    });
  });
}

}  // namespace temper
