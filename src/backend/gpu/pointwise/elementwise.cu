// add, scale, cast and slice_rows. Floor: bytes of the operands.
#include "backend/gpu/copy.h"

namespace temper::gpu {
namespace {

template <class T>
struct AddBoth {
  const T *a, *b;
  T* y;
  template <int kCount>
  __device__ void Run(int64_t i) const {
    float u[kCount], v[kCount];
    Load(a + i, u);
    Load(b + i, v);
    for (int k = 0; k < kCount; ++k) u[k] += v[k];
    Store(y + i, u);
  }
};

// y_TD = a_TD + b_D. b stays in the caches.
template <class T>
struct AddToRows {
  const T *a, *b;
  T* y;
  int64_t D;
  template <int kCount>
  __device__ void Run(int64_t i) const {
    float u[kCount];
    Load(a + i, u);
    int64_t d = i % D;  // divided once
    for (int k = 0; k < kCount; ++k) {
      u[k] += Get(b + d);
      if (++d == D) d = 0;
    }
    Store(y + i, u);
  }
};

template <class T>
struct Times {
  const T* x;
  T* y;
  float factor;
  template <int kCount>
  __device__ void Run(int64_t i) const {
    float u[kCount];
    Load(x + i, u);
    for (int k = 0; k < kCount; ++k) u[k] *= factor;
    Store(y + i, u);
  }
};

template <class From, class To>
struct Convert {
  const From* x;
  To* y;
  template <int kCount>
  __device__ void Run(int64_t i) const {
    float u[kCount];
    Load(x + i, u);
    Store(y + i, u);
  }
};

std::unique_ptr<Kernel> MakeCopy(int64_t from, Bytes bytes, gpuStream_t stream) {
  return MakeKernel(
      [=](const KernelArgs& args) { return Copy(args.inputs[0] + from, args.outputs[0], bytes, stream); });
}

template <class From, class To>
std::unique_ptr<Kernel> MakeConvert(int64_t n, gpuStream_t stream) {
  return MakeKernel([=](const KernelArgs& args) {
    return Map<4>(n, Convert<From, To>{In<From>(args, 0), Out<To>(args, 0)}, stream);
  });
}

}  // namespace

std::unique_ptr<Kernel> MakeAdd(const KernelSpec& spec, const Context& context) {
  if (!IsCompute(spec.outputs[0])) return nullptr;
  return DispatchFloat(spec.outputs[0].dtype, [&]<class T>() {
    const int64_t n = spec.outputs[0].shape.elements(), D = spec.outputs[0].shape.columns();
    const bool rows = !(spec.inputs[0].shape == spec.inputs[1].shape);
    return MakeKernel([=, stream = context.stream](const KernelArgs& args) {
      const T *const a = In<T>(args, 0), *const b = In<T>(args, 1);
      T* const y = Out<T>(args, 0);
      return rows ? Map<kPack<T>>(n, AddToRows<T>{a, b, y, D}, stream) : Map<kPack<T>>(n, AddBoth<T>{a, b, y}, stream);
    });
  });
}

std::unique_ptr<Kernel> MakeScale(const KernelSpec& spec, const Context& context) {
  if (!IsCompute(spec.outputs[0])) return nullptr;
  return DispatchFloat(spec.outputs[0].dtype, [&]<class T>() {
    const auto factor = static_cast<float>(spec.attributes.Double("factor"));
    return MakeKernel([=, n = spec.outputs[0].shape.elements(), stream = context.stream](const KernelArgs& args) {
      return Map<kPack<T>>(n, Times<T>{In<T>(args, 0), Out<T>(args, 0), factor}, stream);
    });
  });
}

std::unique_ptr<Kernel> MakeCast(const KernelSpec& spec, const Context& context) {
  const DType from = spec.inputs[0].dtype, to = spec.outputs[0].dtype;
  const int64_t n = spec.outputs[0].shape.elements();
  if (from == to) return MakeCopy(0, spec.outputs[0].bytes(), context.stream);
  if (from == DType::kF32 && to == DType::kBF16) return MakeConvert<float, bf16>(n, context.stream);
  if (from == DType::kBF16 && to == DType::kF32) return MakeConvert<bf16, float>(n, context.stream);
  return nullptr;
}

std::unique_ptr<Kernel> MakeSliceRows(const KernelSpec& spec, const Context& context) {
  const int64_t row_bytes = spec.inputs[0].shape.columns() * SizeOf(spec.inputs[0].dtype);
  return MakeCopy(spec.attributes.Int("begin") * row_bytes, spec.outputs[0].bytes(), context.stream);
}

}  // namespace temper::gpu
