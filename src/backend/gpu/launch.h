// How kernels of this folder are made and launched: host code, compiled with each of them.
#pragma once

#include <memory>
#include <utility>

#include "backend/gpu/element.h"
#include "backend/gpu/kernels.h"
#include "backend/gpu/reduce.h"

namespace temper::gpu {

// A Kernel from a function: Status(const KernelArgs&).
template <class F>
class FunctionKernel final : public Kernel {
 public:
  explicit FunctionKernel(F run) : run_(std::move(run)) {}
  Status Run(const KernelArgs& args) override { return run_(args); }

 private:
  F run_;
};
template <class F>
std::unique_ptr<Kernel> MakeKernel(F run) {
  return std::make_unique<FunctionKernel<F>>(std::move(run));
}

template <class T>
T* In(const KernelArgs& args, int i) {
  return reinterpret_cast<T*>(args.inputs[i]);
}
template <class T>
T* Out(const KernelArgs& args, int i) {
  return reinterpret_cast<T*>(args.outputs[i]);
}

inline bool IsCompute(const TensorType& t) {
  return t.dtype == DType::kF32 || t.dtype == DType::kBF16;
}

// Blocks of kBlockThreads threads for n items of work, one per thread.
inline unsigned BlocksFor(int64_t n) {
  return static_cast<unsigned>((n + kBlockThreads - 1) / kBlockThreads);
}

// The kernel of elementwise ops. f.Run<kCount>(i) does elements i .. i+kCount; all but the last few are done kCount at
// a time, where i is a multiple of kCount.
template <int kCount, class F>
__global__ void MapElements(int64_t n, F f) {
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kCount;
  if (i + kCount <= n) {
    f.template Run<kCount>(i);
  } else {
    for (int64_t k = i; k < n; ++k) f.template Run<1>(k);
  }
}
template <int kCount, class F>
Status Map(int64_t n, const F& f, gpuStream_t stream) {
  if (n == 0) return OkStatus();
  return TEMPER_LAUNCH((MapElements<kCount, F>), BlocksFor((n + kCount - 1) / kCount), unsigned{kBlockThreads}, stream,
                       n, f);
}

}  // namespace temper::gpu
