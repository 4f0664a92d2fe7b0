// glu, relu, its square, gelu, clamp and their backwards, and softcap: elementwise, one or two outputs.
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/vector/vector_kernels.h"
#include "base/team.h"
#include "graph/named_ops.h"

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
typename VectorKernelsOf<T>::Glu GluOf(const VectorKernelsOf<T>& vectors, const Attributes& a) {
  if (a.Flag("sigmoid")) return vectors.glu_sigmoid;
  if (a.Flag("identity")) return vectors.glu_identity;
  if (!a.Flag("gelu")) return vectors.swiglu;
  return a.Flag("tanh") ? vectors.geglu_tanh : vectors.geglu_erf;
}

template <class T>
std::unique_ptr<Kernel> MakeBounded(void (*f)(const T*, float, T*, int64_t), float bound, int threads, int64_t n) {
  return MakeKernel([=](const KernelArgs& args) {
    const T* const x = In<T>(args, 0);
    T* const y = Out<T>(args, 0);
    ParallelBlocks(threads, n, kElementsPerRange,
                   [=](int64_t begin, int64_t end) { f(x + begin, bound, y + begin, end - begin); });
    return OkStatus();
  });
}

template <class T>
std::unique_ptr<Kernel> MakeClampBackward(const VectorKernelsOf<T>& vectors, float limit, int threads, int64_t n) {
  return MakeKernel([=, f = vectors.clamp_backward](const KernelArgs& args) {
    const T *const d_y = In<T>(args, 0), *const x = In<T>(args, 1);
    T* const d_x = Out<T>(args, 0);
    ParallelBlocks(threads, n, kElementsPerRange,
                   [=](int64_t begin, int64_t end) { f(d_y + begin, x + begin, limit, d_x + begin, end - begin); });
    return OkStatus();
  });
}

template <class T>
std::unique_ptr<Kernel> MakeGluBackward(const VectorKernelsOf<T>& vectors, const Attributes& a, int threads,
                                        int64_t n) {
  return MakeKernel([=, f = GluOf(vectors, a).backward](const KernelArgs& args) {
    const T *const d_h = In<T>(args, 0), *const gate = In<T>(args, 1), *const up = In<T>(args, 2);
    T *const d_gate = Out<T>(args, 0), *const d_up = Out<T>(args, 1);
    ParallelBlocks(threads, n, kElementsPerRange,
                   [=](int64_t i, int64_t end) { f(d_h + i, gate + i, up + i, d_gate + i, d_up + i, end - i); });
    return OkStatus();
  });
}

template <class T>
std::unique_ptr<Kernel> MakeClampedGlu(const VectorKernelsOf<T>& vectors, const KernelSpec& spec) {
  const auto alpha = static_cast<float>(spec.attributes.Double("alpha")),
             limit = static_cast<float>(spec.attributes.Double("limit"));
  const int threads = spec.threads;
  if (spec.op == Op::kGlu) {
    return MakeKernel([=, f = vectors.clamped_glu, n = spec.outputs[0].shape.elements()](const KernelArgs& args) {
      const T* const pairs = In<T>(args, 0);
      T* const h = Out<T>(args, 0);
      ParallelBlocks(threads, n, kElementsPerRange,
                     [=](int64_t i, int64_t end) { f(pairs + 2 * i, alpha, limit, h + i, end - i); });
      return OkStatus();
    });
  }
  return MakeKernel([=, f = vectors.clamped_glu_backward, n = spec.inputs[0].shape.elements()](const KernelArgs& args) {
    const T *const d_h = In<T>(args, 0), *const pairs = In<T>(args, 1);
    T* const d_pairs = Out<T>(args, 0);
    ParallelBlocks(threads, n, kElementsPerRange,
                   [=](int64_t i, int64_t end) { f(d_h + i, pairs + 2 * i, alpha, limit, d_pairs + 2 * i, end - i); });
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
    if (spec.attributes.Flag("clamped")) return MakeClampedGlu<T>(v, spec);
    switch (spec.op) {
      case Op::kGlu:
        return MakeBinary<T>(GluOf(v, spec.attributes).forward, threads, n);
      case Op::kGluBackward:
        return MakeGluBackward<T>(v, spec.attributes, threads, n);
      case Op::kSoftcap:
        return MakeBounded<T>(v.softcap, static_cast<float>(spec.attributes.Double("cap")), threads, n);
      case Op::kClamp:
        return MakeBounded<T>(v.clamp, static_cast<float>(spec.attributes.Double("limit")), threads, n);
      case Op::kClampBackward:
        return MakeClampBackward<T>(v, static_cast<float>(spec.attributes.Double("limit")), threads, n);
      case Op::kRelu:
        return MakeUnary<T>(v.relu, threads, n);
      case Op::kReluBackward:
        return MakeBinary<T>(v.relu_backward, threads, n);
      case Op::kReluSquared:
        return MakeUnary<T>(v.relu_squared, threads, n);
      case Op::kReluSquaredBackward:
        return MakeBinary<T>(v.relu_squared_backward, threads, n);
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
