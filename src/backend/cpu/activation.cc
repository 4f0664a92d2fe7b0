// swiglu, relu, gelu and their backwards: elementwise, one or two outputs.
#include "backend/cpu/kernels.h"
#include "backend/cpu/range_kernel.h"
#include "backend/cpu/vector/vector_kernels.h"
#include "base/team.h"

namespace temper {
namespace {

template <class T>
std::unique_ptr<Kernel> MakeUnary(void (*f)(const T*, T*, int64_t), int threads, int64_t n) {
  return MakeKernel([=](const KernelArgs& args) {
    const T* const x = In<T>(args, 0);
    T* const y = Out<T>(args, 0);
    ParallelBlocks(threads, n, kElementsPerRange,
                   [=](int64_t begin, int64_t end) { f(x + begin, y + begin, end - begin); });
    return OkStatus();
  });
}

template <class T>
std::unique_ptr<Kernel> MakeBinary(void (*f)(const T*, const T*, T*, int64_t), int threads, int64_t n) {
  return MakeKernel([=](const KernelArgs& args) {
    const T *const a = In<T>(args, 0), *const b = In<T>(args, 1);
    T* const y = Out<T>(args, 0);
    ParallelBlocks(threads, n, kElementsPerRange,
                   [=](int64_t begin, int64_t end) { f(a + begin, b + begin, y + begin, end - begin); });
    return OkStatus();
  });
}

template <class T>
std::unique_ptr<Kernel> MakeSwigluBackward(const VectorKernelsOf<T>& vectors, int threads, int64_t n) {
  return MakeKernel([=, f = vectors.swiglu_backward](const KernelArgs& args) {
    const T *const d_h = In<T>(args, 0), *const gate = In<T>(args, 1), *const up = In<T>(args, 2);
    T *const d_gate = Out<T>(args, 0), *const d_up = Out<T>(args, 1);
    ParallelBlocks(threads, n, kElementsPerRange,
                   [=](int64_t i, int64_t end) { f(d_h + i, gate + i, up + i, d_gate + i, d_up + i, end - i); });
    return OkStatus();
  });
}

}  // namespace

std::unique_ptr<Kernel> MakeActivation(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0]})) return nullptr;  // their shape rules want operands of one type
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
    const VectorKernelsOf<T>& v = VectorsFor<T>(isa);
    const int threads = spec.threads;
    const int64_t n = spec.inputs[0].shape.elements();
    const bool tanh = spec.attributes.Flag("tanh");
    switch (spec.op) {
      case Op::kSwiglu:
        return MakeBinary<T>(v.swiglu, threads, n);
      case Op::kSwigluBackward:
        return MakeSwigluBackward<T>(v, threads, n);
      case Op::kRelu:
        return MakeUnary<T>(v.relu, threads, n);
      case Op::kReluBackward:
        return MakeBinary<T>(v.relu_backward, threads, n);
      case Op::kGelu:
        return MakeUnary<T>(tanh ? v.gelu_tanh : v.gelu_erf, threads, n);
      case Op::kGeluBackward:
        return MakeBinary<T>(tanh ? v.gelu_tanh_backward : v.gelu_erf_backward, threads, n);
      default:
        return nullptr;
    }
  });
}

}  // namespace temper
