// add, scale, scale_by, cast, slice_rows and slice_columns with its backward. Floor: bytes of the operands.
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

// The factor is a number of the model's files: it lies on the device.
template <class T>
struct TimesStored {
  const T* x;
  const float* factor;
  T* y;
  template <int kCount>
  __device__ void Run(int64_t i) const {
    float u[kCount];
    Load(x + i, u);
    for (int k = 0; k < kCount; ++k) u[k] *= *factor;
    Store(y + i, u);
  }
};

// y_TC = x_TD[:, first : first + C], T an element's bytes. Slices do not begin at multiples of a pack: an element per
// thread.
template <class T>
struct TakeColumns {
  const T* x;
  T* y;
  int64_t D, first, C;
  template <int kCount>
  __device__ void Run(int64_t i) const {
    static_assert(kCount == 1);
    y[i] = x[i / C * D + first + i % C];
  }
};

// d_x_TD: `acc`, where there is one, and d_y_TC added to columns first to first + C.
template <class T>
struct PutColumns {
  const T *d_y, *acc;
  T* d_x;
  int64_t D, first, C;
  template <int kCount>
  __device__ void Run(int64_t i) const {
    static_assert(kCount == 1);
    const int64_t c = i % D - first;
    float sum = acc != nullptr ? Get(acc + i) : 0;
    if (c >= 0 && c < C) sum += Get(d_y + i / D * C + c);
    Put(d_x + i, sum);
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

std::unique_ptr<Kernel> MakeScaleBy(const KernelSpec& spec, const Context& context) {
  if (!IsCompute(spec.inputs[0]) || spec.inputs[1].dtype != DType::kF32) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    return MakeKernel([=, n = spec.outputs[0].shape.elements(), stream = context.stream](const KernelArgs& args) {
      return Map<kPack<T>>(n, TimesStored<T>{In<T>(args, 0), In<float>(args, 1), Out<T>(args, 0)}, stream);
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

std::unique_ptr<Kernel> MakeSliceColumns(const KernelSpec& spec, const Context& context) {
  const auto make = [&]<class T>(T) {
    const int64_t D = spec.inputs[0].shape.columns(), C = spec.outputs[0].shape.columns();
    return MakeKernel([=, n = spec.outputs[0].shape.elements(), first = spec.attributes.Int("begin"),
                       stream = context.stream](const KernelArgs& args) {
      return Map<1>(n, TakeColumns<T>{In<T>(args, 0), Out<T>(args, 0), D, first, C}, stream);
    });
  };
  switch (SizeOf(spec.inputs[0].dtype)) {
    case 2:
      return make(uint16_t());
    case 4:
      return make(uint32_t());
    case 8:
      return make(uint64_t());
    default:
      return nullptr;
  }
}

std::unique_ptr<Kernel> MakeSliceColumnsBackward(const KernelSpec& spec, const Context& context) {
  if (!IsCompute(spec.inputs[0])) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int64_t D = spec.outputs[0].shape.columns(), C = spec.inputs[0].shape.columns();
    return MakeKernel([=, n = spec.outputs[0].shape.elements(), first = spec.attributes.Int("begin"),
                       acc = spec.attributes.Flag("acc"), stream = context.stream](const KernelArgs& args) {
      const T* const before = acc ? In<T>(args, 1) : nullptr;
      return Map<1>(n, PutColumns<T>{In<T>(args, 0), before, Out<T>(args, 0), D, first, C}, stream);
    });
  });
}

}  // namespace temper::gpu
