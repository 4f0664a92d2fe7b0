// decay and its backward: a number for each token and head, some hundredth of the step's elements, so libm computes it.
// Threads share the tokens; of sums over tokens they share the heads, so that none depends on their number.
#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/pointwise/row_blocks.h"
#include "base/team.h"

namespace temper {
namespace {

float Softplus(float x) {
  return std::max(x, 0.0f) + std::log1p(std::exp(-std::fabs(x)));
}

}  // namespace

std::unique_ptr<Kernel> MakeDecay(const KernelSpec& spec, Isa) {
  if (!AllFast({spec.inputs[0]})) return nullptr;  // the shape rule wants the vectors like a
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int64_t tokens = spec.inputs[0].shape[0], H = spec.inputs[0].shape[1];
    return MakeKernel([=, threads = spec.threads](const KernelArgs& args) {
      const T *const a = In<T>(args, 0), *const a_log = In<T>(args, 1), *const dt_bias = In<T>(args, 2);
      float* const g = Out<float>(args, 0);
      ParallelBlocks(threads, tokens, kRowsPerRange, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin * H; i < end * H; ++i) {
          g[i] = -std::exp(ToFloat(a_log[i % H])) * Softplus(ToFloat(a[i]) + ToFloat(dt_bias[i % H]));
        }
      });
      return OkStatus();
    });
  });
}

std::unique_ptr<Kernel> MakeDecayBackward(const KernelSpec& spec, Isa) {
  if (!AllFast({spec.inputs[1]})) return nullptr;
  return DispatchFloat(spec.inputs[1].dtype, [&]<class T>() {
    const int64_t tokens = spec.inputs[1].shape[0], H = spec.inputs[1].shape[1];
    const bool grad_w = spec.attributes.Flag("grad_w"), acc_w = spec.attributes.Flag("acc_w");
    return MakeKernel([=, threads = spec.threads](const KernelArgs& args) {
      const float* const d_g = In<float>(args, 0);
      const T *const a = In<T>(args, 1), *const a_log = In<T>(args, 2), *const dt_bias = In<T>(args, 3);
      T* const d_a = Out<T>(args, 0);
      ParallelBlocks(threads, tokens, kRowsPerRange, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin * H; i < end * H; ++i) {
          const float rate = -std::exp(ToFloat(a_log[i % H])), x = ToFloat(a[i]) + ToFloat(dt_bias[i % H]);
          d_a[i] = FromFloat<T>(d_g[i] * rate / (1 + std::exp(-x)));
        }
      });
      if (!grad_w) return OkStatus();
      ParallelFor(threads, H, [&](int64_t h) {
        const float rate = -std::exp(ToFloat(a_log[h])), shift = ToFloat(dt_bias[h]);
        double d_a_log = acc_w ? In<float>(args, 4)[h] : 0, d_dt_bias = acc_w ? In<float>(args, 5)[h] : 0;
        for (int64_t t = 0; t < tokens; ++t) {
          const float x = ToFloat(a[t * H + h]) + shift, d = d_g[t * H + h] * rate;
          d_a_log += d * Softplus(x);
          d_dt_bias += d / (1 + std::exp(-x));
        }
        Out<float>(args, 1)[h] = static_cast<float>(d_a_log);
        Out<float>(args, 2)[h] = static_cast<float>(d_dt_bias);
      });
      return OkStatus();
    });
  });
}

}  // namespace temper
