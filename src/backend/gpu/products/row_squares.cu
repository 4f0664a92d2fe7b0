// row_squares: a block for a few rows of w, of which it makes the terms of the sum one after the other, without the
// product of a and b in memory. Floor: the bytes of w; 2 R flops for each of its elements, and a read from the caches
// for each kRows of them.
#include "backend/gpu/launch.h"
#include "backend/gpu/products/dequantise.h"

namespace temper::gpu {
namespace {

constexpr int kRows = 8;  // of a block: so often is what it reads of a used

template <class T>
__global__ void RowSquares(const T* a_RI, const T* w_OI, const T* b_OR, const float* acc_O, float scale, int64_t R,
                           int64_t I, int64_t O, float* q_O) {
  TEMPER_SHARED(float, scratch, kMostWarps);
  const int64_t first = int64_t{blockIdx.x} * kRows;
  float sums[kRows] = {};
  for (int64_t i = threadIdx.x; i < I; i += kBlockThreads) {
    float delta[kRows] = {};
    for (int64_t r = 0; r < R; ++r) {
      const float a = Get(a_RI + r * I + i);
      for (int k = 0; k < kRows; ++k) {
        if (first + k < O) delta[k] = Fma(Get(b_OR + (first + k) * R + r), a, delta[k]);
      }
    }
    for (int k = 0; k < kRows; ++k) {
      if (first + k >= O) continue;
      const float d = scale * delta[k];
      sums[k] = Fma(d, 2 * Get(w_OI + (first + k) * I + i) + d, sums[k]);
    }
  }
  for (int k = 0; k < kRows; ++k) {
    const float sum = ReduceBlock<Sum, float>(sums[k], scratch);
    if (threadIdx.x == 0 && first + k < O) q_O[first + k] = sum + (acc_O == nullptr ? 0 : acc_O[first + k]);
  }
}

}  // namespace

std::unique_ptr<Kernel> MakeRowSquares(const KernelSpec& spec, const Context& context) {
  const TensorType& w = spec.inputs[1];
  if (!IsCompute(spec.inputs[0]) || w.packed() || (w.dtype.quantised() && !spec.attributes.Flag("dequantise"))) {
    return nullptr;
  }
  TEMPER_CHECK(!w.dtype.quantised() || spec.workspace >= w.computed().bytes()) << spec.workspace.v;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int64_t R = spec.inputs[0].shape[0], I = spec.inputs[0].shape[1], O = w.shape[0];
    const bool acc = spec.attributes.Flag("acc");
    const auto scale = static_cast<float>(spec.attributes.Double("scale"));
    return MakeKernel([=, stream = context.stream](const KernelArgs& args) {
      const std::byte* numbers = args.inputs[1];
      if (w.dtype.quantised()) {
        TEMPER_RETURN_IF_ERROR(Dequantise(w, numbers, args.workspace, stream));
        numbers = args.workspace;
      }
      if (O == 0) return OkStatus();
      const float* const before = acc ? In<float>(args, 3) : nullptr;
      return TEMPER_LAUNCH((RowSquares<T>), static_cast<unsigned>((O + kRows - 1) / kRows), unsigned{kBlockThreads},
                           stream, In<T>(args, 0), reinterpret_cast<const T*>(numbers), In<T>(args, 2), before, scale,
                           R, I, O, Out<float>(args, 0));
    });
  });
}

}  // namespace temper::gpu
