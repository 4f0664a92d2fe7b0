// sum_squares: a fixed tree, blocks of 4096 elements in double, then the blocks in order.
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/vector/vector_kernels.h"
#include "base/team.h"

namespace temper {

std::unique_ptr<Kernel> MakeSumSquares(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int threads = spec.threads;
    const int64_t n = spec.inputs[0].shape.elements(), blocks = (n + kElementsPerRange - 1) / kElementsPerRange;
    const auto sum_squares = VectorsFor<T>(isa).sum_squares;
    TEMPER_CHECK(spec.workspace.v >= blocks * 8) << spec.workspace.v;
    return MakeKernel([=](const KernelArgs& args) {
      const T* const g = In<T>(args, 0);
      double* const sums = reinterpret_cast<double*>(args.workspace);
      ParallelBlocks(threads, n, kElementsPerRange, [=](int64_t begin, int64_t end) {
        sums[begin / kElementsPerRange] = sum_squares(g + begin, end - begin);
      });
      double total = 0;
      for (int64_t i = 0; i < blocks; ++i) total += sums[i];
      *Out<double>(args, 0) = total;
      return OkStatus();
    });
  });
}

}  // namespace temper
