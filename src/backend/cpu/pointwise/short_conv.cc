// short_conv and its backward: threads share the channels, so that no sum depends on their number.
#include <algorithm>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/vector/vector_kernels.h"
#include "base/team.h"

namespace temper {

std::unique_ptr<Kernel> MakeShortConv(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0]})) return nullptr;  // the shape rule wants w like x
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const Shape &x = spec.inputs[0].shape, &w = spec.inputs[1].shape;
    const ShortConvDims dims{x[0], x[1], w[2], spec.attributes.Flag("silu")};
    const bool bias = spec.attributes.Flag("bias");
    return MakeKernel([=, f = VectorsFor<T>(isa).short_conv, threads = spec.threads](const KernelArgs& args) {
      ParallelBlocks(threads, dims.channels, kConvChannels, [&](int64_t begin, int64_t end) {
        f(In<T>(args, 0), In<T>(args, 1), bias ? In<T>(args, 3) : nullptr, In<int32_t>(args, 2), dims, begin, end,
          Out<T>(args, 0));
      });
      return OkStatus();
    });
  });
}

std::unique_ptr<Kernel> MakeShortConvBackward(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const Shape &x = spec.inputs[1].shape, &w = spec.inputs[2].shape;
    const ShortConvDims dims{x[0], x[1], w[2], spec.attributes.Flag("silu")};
    const bool grad_w = spec.attributes.Flag("grad_w"), acc_w = spec.attributes.Flag("acc_w");
    const bool bias = spec.attributes.Flag("bias");
    return MakeKernel([=, f = VectorsFor<T>(isa).short_conv_backward, threads = spec.threads](const KernelArgs& args) {
      const int acc = 4 + bias;
      const ShortConvGradients of{.acc_w_CL = acc_w ? In<float>(args, acc) : nullptr,
                                  .acc_bias_C = acc_w && bias ? In<float>(args, acc + 1) : nullptr,
                                  .d_w_CL = grad_w ? Out<float>(args, 1) : nullptr,
                                  .d_bias_C = grad_w && bias ? Out<float>(args, 2) : nullptr};
      ParallelBlocks(threads, dims.channels, kConvChannels, [&](int64_t begin, int64_t end) {
        f(In<T>(args, 0), In<T>(args, 1), In<T>(args, 2), bias ? In<T>(args, 4) : nullptr, In<int32_t>(args, 3), dims,
          begin, end, Out<T>(args, 0), of);
      });
      return OkStatus();
    });
  });
}

std::unique_ptr<Kernel> MakeShortConvCached(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const Shape &x = spec.inputs[0].shape, &w = spec.inputs[1].shape;
    const ShortConvDims dims{x[0], x[1], w[2], spec.attributes.Flag("silu")};
    const bool bias = spec.attributes.Flag("bias");
    return MakeKernel([=, f = VectorsFor<T>(isa).short_conv_cached, of_states = spec.inputs[2].shape.elements(),
                       threads = spec.threads](const KernelArgs& args) {
      T* const state = Out<T>(args, 1);
      if (In<T>(args, 2) != state) std::copy_n(In<T>(args, 2), of_states, state);
      ParallelBlocks(threads, dims.channels, kConvChannels, [&](int64_t begin, int64_t end) {
        f(In<T>(args, 0), In<T>(args, 1), bias ? In<T>(args, 5) : nullptr, In<int32_t>(args, 3), In<int32_t>(args, 4),
          dims, begin, end, state, Out<T>(args, 0));
      });
      return OkStatus();
    });
  });
}

}  // namespace temper
