// scale_columns and its backward. Floor: bytes of the operands; d_m reads d_y and x once more.
#include "backend/gpu/launch.h"
#include "backend/gpu/pointwise/column_sums.h"

namespace temper::gpu {
namespace {

__device__ float ReciprocalRoot(float q) {
  return q > 0 ? 1 / Sqrt(q) : 0;
}

// y = (m / sqrt(q) - less) * x. m and q stay in the caches.
template <class T>
struct TimesColumns {
  const T* x;
  const float *m_O, *q_O;
  float less;
  T* y;
  int64_t O;
  template <int kCount>
  __device__ void Run(int64_t i) const {
    float u[kCount];
    Load(x + i, u);
    int64_t o = i % O;  // divided once
    for (int k = 0; k < kCount; ++k) {
      u[k] *= (q_O[o] > 0 ? m_O[o] / Sqrt(q_O[o]) : 0) - less;
      if (++o == O) o = 0;
    }
    Store(y + i, u);
  }
};

// Partial row p of d_m: the sum of d_y x / sqrt(q) over rows [p kPartialRows, ...). A thread per column.
template <class T>
__global__ void MagnitudePartialRows(const T* d_y_TO, const T* x_TO, const float* q_O, int64_t rows, int64_t O,
                                     float* partial_PO) {
  const int64_t o = int64_t{blockIdx.y} * kBlockThreads + threadIdx.x, p = blockIdx.x;
  if (o >= O) return;
  const float reciprocal = ReciprocalRoot(q_O[o]);
  const int64_t end = (p + 1) * kPartialRows < rows ? (p + 1) * kPartialRows : rows;
  float sum = 0;
  for (int64_t t = p * kPartialRows; t < end; ++t) {
    sum = Fma(Get(d_y_TO + t * O + o), Get(x_TO + t * O + o) * reciprocal, sum);
  }
  partial_PO[p * O + o] = sum;
}

float LessOf(const KernelSpec& spec) {
  return spec.attributes.Flag("minus_one") ? 1.0f : 0.0f;
}

}  // namespace

std::unique_ptr<Kernel> MakeScaleColumns(const KernelSpec& spec, const Context& context) {
  if (!IsCompute(spec.inputs[0])) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int64_t n = spec.inputs[0].shape.elements(), O = spec.inputs[0].shape[1];
    return MakeKernel([=, less = LessOf(spec), stream = context.stream](const KernelArgs& args) {
      return Map<kPack<T>>(
          n, TimesColumns<T>{In<T>(args, 0), In<float>(args, 1), In<float>(args, 2), less, Out<T>(args, 0), O}, stream);
    });
  });
}

std::unique_ptr<Kernel> MakeScaleColumnsBackward(const KernelSpec& spec, const Context& context) {
  if (!IsCompute(spec.inputs[0])) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int64_t rows = spec.inputs[0].shape[0], O = spec.inputs[0].shape[1];
    const bool acc = spec.attributes.Flag("acc");
    TEMPER_CHECK(spec.workspace.v >= NumPartialRows(rows) * O * 4) << spec.workspace.v;
    return MakeKernel([=, less = LessOf(spec), stream = context.stream](const KernelArgs& args) {
      const T *const d_y = In<T>(args, 0), *const x = In<T>(args, 1);
      const float *const m = In<float>(args, 2), *const q = In<float>(args, 3);
      auto* const partial = reinterpret_cast<float*>(args.workspace);
      const auto partials = static_cast<unsigned>(NumPartialRows(rows));
      if (rows > 0 && O > 0) {
        constexpr unsigned kThreads = kBlockThreads;
        TEMPER_RETURN_IF_ERROR(TEMPER_LAUNCH((MagnitudePartialRows<T>), (gpuDim3{partials, BlocksFor(O)}), kThreads,
                                             stream, d_y, x, q, rows, O, partial));
      }
      TEMPER_RETURN_IF_ERROR(
          SumColumns<float>(partial, partials, O, acc ? In<float>(args, 4) : nullptr, Out<float>(args, 1), stream));
      return Map<kPack<T>>(rows * O, TimesColumns<T>{d_y, m, q, less, Out<T>(args, 0), O}, stream);
    });
  });
}

}  // namespace temper::gpu
