// sgd: one pass over three arrays read and two or three written, 20 bytes per element plus the weight's; without
// momentum 12.
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/pointwise/sgd_step.h"
#include "backend/cpu/vector/vector_kernels.h"
#include "base/team.h"

namespace temper {

std::unique_ptr<Kernel> MakeSgd(const KernelSpec& spec, Isa isa) {
  const bool with_weight = spec.attributes.Flag("weight"), with_buffer = spec.attributes.Flag("buffer");
  const DType weight_dtype = with_weight ? spec.outputs.back().dtype.dtype() : DType::kF32;
  if (weight_dtype != DType::kF32 && weight_dtype != DType::kBF16) return nullptr;
  return DispatchFloat(weight_dtype, [&]<class W>() {
    const int threads = spec.threads;
    const int64_t n = spec.inputs[0].shape.elements();
    const auto sgd = VectorsFor<W>(isa).sgd;
    return MakeKernel([=, attributes = spec.attributes](const KernelArgs& args) {
      const int clip = with_buffer ? 3 : 2;
      const SgdScalars scalars = PrepareSgd(attributes, In<float>(args, clip), In<double>(args, clip + 1));
      const float *const master = In<float>(args, 0), *const g = In<float>(args, 1);
      const float* const buffer = with_buffer ? In<float>(args, 2) : nullptr;
      float *const new_master = Out<float>(args, 0), *const new_buffer = with_buffer ? Out<float>(args, 1) : nullptr;
      W* const weight = with_weight ? Out<W>(args, with_buffer ? 2 : 1) : nullptr;
      ParallelBlocks(threads, n, kElementsPerRange, [=, &scalars](int64_t i, int64_t end) {
        sgd(scalars, master + i, g + i, with_buffer ? buffer + i : nullptr, new_master + i,
            with_buffer ? new_buffer + i : nullptr, with_weight ? weight + i : nullptr, end - i);
      });
      return OkStatus();
    });
  });
}

}  // namespace temper
