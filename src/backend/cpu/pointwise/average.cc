// average: one pass over two arrays read and one written, 12 bytes per element.
#include "backend/cpu/pointwise/average_step.h"

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/vector/vector_kernels.h"
#include "base/team.h"

namespace temper {

std::unique_ptr<Kernel> MakeAverage(const KernelSpec& spec, Isa isa) {
  const int threads = spec.threads;
  const int64_t n = spec.inputs[0].shape.elements();
  const auto average = VectorsFor<float>(isa).average;
  return MakeKernel([=](const KernelArgs& args) {
    const AverageScalars scalars = PrepareAverage(In<double>(args, 3)[0]);
    const float *const before = In<float>(args, 0), *const weight = In<float>(args, 1);
    float* const after = Out<float>(args, 0);
    ParallelBlocks(threads, n, kElementsPerRange, [=, &scalars](int64_t i, int64_t end) {
      average(scalars, before + i, weight + i, after + i, end - i);
    });
    return OkStatus();
  });
}

}  // namespace temper
