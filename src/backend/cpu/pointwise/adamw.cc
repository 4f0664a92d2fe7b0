// adamw: one pass over four arrays read and three or four written, 28 bytes per element plus the weight's.
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/adamw_step.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/vector/vector_kernels.h"
#include "base/team.h"

namespace temper {

std::unique_ptr<Kernel> MakeAdamw(const KernelSpec& spec, Isa isa) {
  const bool with_weight = spec.attributes.Flag("weight");
  const DType weight_dtype = with_weight ? spec.outputs[3].dtype.dtype() : DType::kF32;
  if (weight_dtype != DType::kF32 && weight_dtype != DType::kBF16) return nullptr;
  return DispatchFloat(weight_dtype, [&]<class W>() {
    const int threads = spec.threads;
    const int64_t n = spec.inputs[0].shape.elements();
    const auto adamw = VectorsFor<W>(isa).adamw;
    return MakeKernel([=, attributes = spec.attributes](const KernelArgs& args) {
      const AdamwScalars scalars = PrepareAdamw(attributes, In<float>(args, 4), In<double>(args, 5));
      const float *const master = In<float>(args, 0), *const g = In<float>(args, 1), *const m = In<float>(args, 2);
      const float* const v = In<float>(args, 3);
      float *const new_master = Out<float>(args, 0), *const new_m = Out<float>(args, 1);
      float* const new_v = Out<float>(args, 2);
      W* const weight = with_weight ? Out<W>(args, 3) : nullptr;
      ParallelBlocks(threads, n, kElementsPerRange, [=, &scalars](int64_t i, int64_t end) {
        adamw(scalars, master + i, g + i, m + i, v + i, new_master + i, new_m + i, new_v + i,
              weight == nullptr ? nullptr : weight + i, end - i);
      });
      return OkStatus();
    });
  });
}

}  // namespace temper
