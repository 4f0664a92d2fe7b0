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
    const bool steps = spec.attributes.Flag("steps");
    const auto least = static_cast<float>(spec.attributes.DoubleOr("min", 0));
    return MakeKernel([=, threads = spec.threads](const KernelArgs& args) {
      const T *const a = In<T>(args, 0), *const a_log = In<T>(args, 1), *const dt_bias = In<T>(args, 2);
      float *const g = Out<float>(args, 0), *const dt = steps ? Out<float>(args, 1) : nullptr;
      ParallelBlocks(threads, tokens, kRowsPerRange, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin * H; i < end * H; ++i) {
          const float step = std::max(Softplus(ToFloat(a[i]) + ToFloat(dt_bias[i % H])), least);
          g[i] = -std::exp(ToFloat(a_log[i % H])) * step;
          if (dt != nullptr) dt[i] = step;
        }
      });
      return OkStatus();
    });
  });
}

std::unique_ptr<Kernel> MakeDecayBackward(const KernelSpec& spec, Isa) {
  const int first = 1 + spec.attributes.Flag("steps");  // of the forward's operands
  const TensorType& of_a = spec.inputs[static_cast<size_t>(first)];
  if (!AllFast({of_a})) return nullptr;
  return DispatchFloat(of_a.dtype, [&]<class T>() {
    const int64_t tokens = of_a.shape[0], H = of_a.shape[1];
    const bool grad_w = spec.attributes.Flag("grad_w"), acc_w = spec.attributes.Flag("acc_w");
    const auto least = static_cast<float>(spec.attributes.DoubleOr("min", 0));
    return MakeKernel([=, threads = spec.threads](const KernelArgs& args) {
      const float *const d_g = In<float>(args, 0), *const d_dt = first == 2 ? In<float>(args, 1) : nullptr;
      const T *const a = In<T>(args, first), *const a_log = In<T>(args, first + 1);
      const T* const dt_bias = In<T>(args, first + 2);
      // Of the step's operand x.
      const auto gradient = [=](int64_t i, float rate, float x) {
        const float d_step = d_g[i] * rate + (d_dt == nullptr ? 0 : d_dt[i]);
        return Softplus(x) < least ? 0 : d_step / (1 + std::exp(-x));
      };
      T* const d_a = Out<T>(args, 0);
      ParallelBlocks(threads, tokens, kRowsPerRange, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin * H; i < end * H; ++i) {
          const float rate = -std::exp(ToFloat(a_log[i % H])), x = ToFloat(a[i]) + ToFloat(dt_bias[i % H]);
          d_a[i] = FromFloat<T>(gradient(i, rate, x));
        }
      });
      if (!grad_w) return OkStatus();
      ParallelFor(threads, H, [&](int64_t h) {
        const float rate = -std::exp(ToFloat(a_log[h])), shift = ToFloat(dt_bias[h]);
        double d_a_log = acc_w ? In<float>(args, first + 3)[h] : 0,
               d_dt_bias = acc_w ? In<float>(args, first + 4)[h] : 0;
        for (int64_t t = 0; t < tokens; ++t) {
          const float x = ToFloat(a[t * H + h]) + shift;
          d_a_log += d_g[t * H + h] * rate * std::max(Softplus(x), least);
          d_dt_bias += gradient(t * H + h, rate, x);
        }
        Out<float>(args, 1)[h] = static_cast<float>(d_a_log);
        Out<float>(args, 2)[h] = static_cast<float>(d_dt_bias);
      });
      return OkStatus();
    });
  });
}

}  // namespace temper
