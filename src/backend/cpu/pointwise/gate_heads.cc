// gate_heads and its backward: threads share the tokens; a head's sum stays in f32.
#include <cmath>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/pointwise/row_blocks.h"

namespace temper {
namespace {

float Logistic(float x) {
  return 1 / (1 + std::exp(-x));
}

}  // namespace

std::unique_ptr<Kernel> MakeGateHeads(const KernelSpec& spec, Isa) {
  if (!AllFast({spec.inputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int64_t rows = spec.inputs[0].shape[0], H = spec.inputs[1].shape[1], E = spec.inputs[0].shape[1] / H;
    return MakeKernel([=, threads = spec.threads](const KernelArgs& args) {
      const T *const x = In<T>(args, 0), *const gate = In<T>(args, 1);
      T* const y = Out<T>(args, 0);
      ParallelBlocks(threads, rows, kRowsPerRange, [=](int64_t begin, int64_t end) {
        for (int64_t h = begin * H; h < end * H; ++h) {
          const float scale = Logistic(ToFloat(gate[h]));
          for (int64_t i = h * E; i < (h + 1) * E; ++i) y[i] = FromFloat<T>(scale * ToFloat(x[i]));
        }
      });
      return OkStatus();
    });
  });
}

std::unique_ptr<Kernel> MakeGateHeadsBackward(const KernelSpec& spec, Isa) {
  if (!AllFast({spec.inputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int64_t rows = spec.inputs[0].shape[0], H = spec.inputs[2].shape[1], E = spec.inputs[0].shape[1] / H;
    return MakeKernel([=, threads = spec.threads](const KernelArgs& args) {
      const T *const d_y = In<T>(args, 0), *const x = In<T>(args, 1), *const gate = In<T>(args, 2);
      T *const d_x = Out<T>(args, 0), *const d_gate = Out<T>(args, 1);
      ParallelBlocks(threads, rows, kRowsPerRange, [=](int64_t begin, int64_t end) {
        for (int64_t h = begin * H; h < end * H; ++h) {
          const float scale = Logistic(ToFloat(gate[h]));
          float sum = 0;
          for (int64_t i = h * E; i < (h + 1) * E; ++i) {
            const float d = ToFloat(d_y[i]);
            sum += d * ToFloat(x[i]);
            d_x[i] = FromFloat<T>(scale * d);
          }
          d_gate[h] = FromFloat<T>(scale * (1 - scale) * sum);
        }
      });
      return OkStatus();
    });
  });
}

}  // namespace temper
