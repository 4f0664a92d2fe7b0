// xielu and its backward. The gradients of its two numbers are sums of a fixed tree: blocks of 4096 elements, then the
// blocks in order.
#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/vector/vector_kernels.h"
#include "base/team.h"
#include "graph/named_ops.h"

namespace temper {
namespace {

double SoftplusOf(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
}

// `first`: the operand alpha_p.
template <class T>
XieluNumbers NumbersOf(const KernelArgs& args, int first) {
  const double beta = In<float>(args, first + 2)[0];
  return {.p = static_cast<float>(SoftplusOf(ToFloat(In<T>(args, first)[0]))),
          .n = static_cast<float>(beta + SoftplusOf(ToFloat(In<T>(args, first + 1)[0]))),
          .beta = static_cast<float>(beta),
          .eps = In<float>(args, first + 3)[0]};
}

template <class T>
std::unique_ptr<Kernel> MakeForward(const KernelSpec& spec, Isa isa) {
  return MakeKernel([threads = spec.threads, n = spec.inputs[0].shape.elements(),
                     xielu = VectorsFor<T>(isa).xielu](const KernelArgs& args) {
    const XieluNumbers of = NumbersOf<T>(args, 1);
    const T* const x = In<T>(args, 0);
    T* const y = Out<T>(args, 0);
    ParallelBlocks(threads, n, kElementsPerRange,
                   [=](int64_t begin, int64_t end) { xielu(x + begin, of, y + begin, end - begin); });
    return OkStatus();
  });
}

template <class T>
std::unique_ptr<Kernel> MakeBackward(const KernelSpec& spec, Isa isa) {
  const bool grad_w = spec.attributes.Flag("grad_w"), acc_w = spec.attributes.Flag("acc_w");
  const int64_t n = spec.inputs[1].shape.elements(), blocks = (n + kElementsPerRange - 1) / kElementsPerRange;
  TEMPER_CHECK(!grad_w || spec.workspace.v >= blocks * 2 * SizeOf(DType::kF64)) << spec.workspace.v;
  return MakeKernel([=, threads = spec.threads, backward = VectorsFor<T>(isa).xielu_backward](const KernelArgs& args) {
    const XieluNumbers of = NumbersOf<T>(args, 2);
    const T *const d_y = In<T>(args, 0), *const x = In<T>(args, 1);
    T* const d_x = Out<T>(args, 0);
    double* const sums = grad_w ? reinterpret_cast<double*>(args.workspace) : nullptr;
    ParallelBlocks(threads, n, kElementsPerRange, [=](int64_t begin, int64_t end) {
      const XieluSums sum = backward(d_y + begin, x + begin, of, d_x + begin, end - begin);
      if (sums == nullptr) return;
      sums[2 * (begin / kElementsPerRange)] = sum.p;
      sums[2 * (begin / kElementsPerRange) + 1] = sum.n;
    });
    for (int i = 0; grad_w && i < 2; ++i) {
      double sum = 0;
      for (int64_t b = 0; b < blocks; ++b) sum += sums[2 * b + i];
      const double alpha = ToFloat(In<T>(args, 2 + i)[0]);
      sum *= 1 / (1 + std::exp(-alpha));
      Out<float>(args, 1 + i)[0] = static_cast<float>(sum + (acc_w ? In<float>(args, 6 + i)[0] : 0));
    }
    return OkStatus();
  });
}

}  // namespace

std::unique_ptr<Kernel> MakeXielu(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    return spec.op == Op::kXielu ? MakeForward<T>(spec, isa) : MakeBackward<T>(spec, isa);
  });
}

}  // namespace temper
