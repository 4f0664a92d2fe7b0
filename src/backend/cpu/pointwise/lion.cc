// lion: one pass over three arrays read and two or three written, 20 bytes per element plus the weight's.
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/lion_step.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/vector/vector_kernels.h"
#include "base/team.h"

namespace temper {

std::unique_ptr<Kernel> MakeLion(const KernelSpec& spec, Isa isa) {
  const bool with_weight = spec.attributes.Flag("weight");
  const DType weight_dtype = with_weight ? spec.outputs.back().dtype.dtype() : DType::kF32;
  if (weight_dtype != DType::kF32 && weight_dtype != DType::kBF16) return nullptr;
  return DispatchFloat(weight_dtype, [&]<class W>() {
    const int threads = spec.threads;
    const int64_t n = spec.inputs[0].shape.elements();
    const auto lion = VectorsFor<W>(isa).lion;
    return MakeKernel([=, attributes = spec.attributes](const KernelArgs& args) {
      const LionScalars scalars = PrepareLion(attributes, In<float>(args, 3), In<double>(args, 4));
      const float *const master = In<float>(args, 0), *const g = In<float>(args, 1), *const mean = In<float>(args, 2);
      float *const new_master = Out<float>(args, 0), *const new_mean = Out<float>(args, 1);
      W* const weight = with_weight ? Out<W>(args, 2) : nullptr;
      ParallelBlocks(threads, n, kElementsPerRange, [=, &scalars](int64_t i, int64_t end) {
        lion(scalars, master + i, g + i, mean + i, new_master + i, new_mean + i, with_weight ? weight + i : nullptr,
             end - i);
      });
      return OkStatus();
    });
  });
}

}  // namespace temper
