// rms_norm and its backward: a block per row, or per group of one. Floor: bytes of the operands; x is read twice, the
// second time from the caches; d_w reads d_y and x once more (2 of 5 or 6 passes, in full fine-tuning only).
#include "backend/gpu/launch.h"
#include "backend/gpu/pointwise/column_sums.h"

namespace temper::gpu {
namespace {

// What scales kCount elements of a row: w, or 1 + w.
template <class T, int kCount>
__device__ void LoadScale(const T* w, bool plus_one, float (&scale)[kCount]) {
  Load(w, scale);
  if (!plus_one) return;
  for (int k = 0; k < kCount; ++k) scale[k] += 1;
}

// Row t has the scales of group t % groups.
template <class T, int kCount>
__global__ void RmsNormRows(const T* x_TD, const T* w_GD, bool plus_one, float eps, int64_t groups, int64_t D, T* y_TD,
                            float* rstd_T) {
  TEMPER_SHARED(float, scratch, kMostWarps);
  const int64_t t = blockIdx.x, step = int64_t{kBlockThreads} * kCount, begin = int64_t{threadIdx.x} * kCount;
  const T *const x = x_TD + t * D, *const w = w_GD + t % groups * D;
  float squares = 0;
  for (int64_t d = begin; d < D; d += step) {
    float a[kCount];
    Load(x + d, a);
    for (int k = 0; k < kCount; ++k) squares = Fma(a[k], a[k], squares);
  }
  squares = ReduceBlock<Sum, float>(squares, scratch);
  const float rstd = 1 / Sqrt(squares / static_cast<float>(D) + eps);
  if (threadIdx.x == 0) rstd_T[t] = rstd;
  for (int64_t d = begin; d < D; d += step) {
    float a[kCount], b[kCount];
    Load(x + d, a);
    LoadScale(w + d, plus_one, b);
    for (int k = 0; k < kCount; ++k) a[k] = a[k] * rstd * b[k];
    Store(y_TD + t * D + d, a);
  }
}

// With g = d_y w and n = x rstd:  d_x = rstd (g - n mean(g n)) + acc.
template <class T, int kCount>
__global__ void RmsNormRowGradients(const T* d_y_TD, const T* x_TD, const T* w_GD, bool plus_one, const float* rstd_T,
                                    const T* acc_TD, int64_t groups, int64_t D, T* d_x_TD) {
  TEMPER_SHARED(float, scratch, kMostWarps);
  const int64_t t = blockIdx.x, step = int64_t{kBlockThreads} * kCount, begin = int64_t{threadIdx.x} * kCount;
  const T *const x = x_TD + t * D, *const d_y = d_y_TD + t * D, *const w = w_GD + t % groups * D;
  float dot = 0;
  for (int64_t d = begin; d < D; d += step) {
    float a[kCount], b[kCount], g[kCount];
    Load(x + d, a);
    LoadScale(w + d, plus_one, b);
    Load(d_y + d, g);
    for (int k = 0; k < kCount; ++k) dot = Fma(g[k] * b[k], a[k], dot);
  }
  dot = ReduceBlock<Sum, float>(dot, scratch);
  const float rstd = rstd_T[t], along_x = -rstd * rstd * rstd * (dot / static_cast<float>(D));
  for (int64_t d = begin; d < D; d += step) {
    float a[kCount], b[kCount], g[kCount], sum[kCount] = {};
    Load(x + d, a);
    LoadScale(w + d, plus_one, b);
    Load(d_y + d, g);
    if (acc_TD != nullptr) Load(acc_TD + t * D + d, sum);
    for (int k = 0; k < kCount; ++k) sum[k] = Fma(g[k] * b[k], rstd, Fma(a[k], along_x, sum[k]));
    Store(d_x_TD + t * D + d, sum);
  }
}

// Partial row p of d_w: the sum of d_y n over rows [p kPartialRows, ...). A thread per column. A row has D elements, of
// which every `width` have an rstd of their own.
template <class T>
__global__ void RmsNormPartialRows(const T* d_y_TD, const T* x_TD, const float* rstd_T, int64_t rows, int64_t D,
                                   int64_t width, float* partial_PD) {
  const int64_t d = int64_t{blockIdx.y} * kBlockThreads + threadIdx.x, p = blockIdx.x;
  if (d >= D) return;
  const int64_t groups = D / width, group = d / width;
  const int64_t end = (p + 1) * kPartialRows < rows ? (p + 1) * kPartialRows : rows;
  float sum = 0;
  for (int64_t t = p * kPartialRows; t < end; ++t) {
    sum = Fma(Get(d_y_TD + t * D + d), Get(x_TD + t * D + d) * rstd_T[t * groups + group], sum);
  }
  partial_PD[p * D + d] = sum;
}

// Groups with scales of their own; 1 where all rows, and all groups of a row, share them.
int64_t OwnGroups(const KernelSpec& spec) {
  return spec.attributes.IntOr("groups", 1);
}

}  // namespace

std::unique_ptr<Kernel> MakeRmsNorm(const KernelSpec& spec, const Context& context) {
  if (!IsCompute(spec.inputs[0]) || spec.inputs[1].dtype != spec.inputs[0].dtype) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    // A group counts as a row.
    const int64_t rows = spec.outputs[1].shape.elements(), groups = OwnGroups(spec);
    const int64_t D = spec.inputs[1].shape[0] / groups;
    const auto eps = static_cast<float>(spec.attributes.Double("eps"));
    const bool plus_one = spec.attributes.Flag("plus_one");
    return MakeKernel([=, stream = context.stream](const KernelArgs& args) {
      if (rows == 0) return OkStatus();
      const T *const x = In<T>(args, 0), *const w = In<T>(args, 1);
      T* const y = Out<T>(args, 0);
      float* const rstd = Out<float>(args, 1);
      const auto blocks = static_cast<unsigned>(rows);
      constexpr unsigned kThreads = kBlockThreads;
      return D % kPack<T> == 0 ? TEMPER_LAUNCH((RmsNormRows<T, kPack<T>>), blocks, kThreads, stream, x, w, plus_one,
                                               eps, groups, D, y, rstd)
                               : TEMPER_LAUNCH((RmsNormRows<T, 1>), blocks, kThreads, stream, x, w, plus_one, eps,
                                               groups, D, y, rstd);
    });
  });
}

std::unique_ptr<Kernel> MakeRmsNormBackward(const KernelSpec& spec, const Context& context) {
  if (!IsCompute(spec.inputs[0]) || spec.inputs[2].dtype != spec.inputs[0].dtype) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int64_t rows = spec.inputs[3].shape.elements(), groups = OwnGroups(spec);  // a group counts as a row
    const int64_t D = spec.inputs[2].shape[0] / groups;
    const bool acc = spec.attributes.Flag("acc"), grad_w = spec.attributes.Flag("grad_w");
    const bool acc_w = spec.attributes.Flag("acc_w"), plus_one = spec.attributes.Flag("plus_one");
    TEMPER_CHECK(!grad_w || spec.workspace.v >= NumPartialRows(rows / groups) * groups * D * 4) << spec.workspace.v;
    return MakeKernel([=, stream = context.stream](const KernelArgs& args) {
      const T *const d_y = In<T>(args, 0), *const x = In<T>(args, 1), *const w = In<T>(args, 2);
      const T* const sum = acc ? In<T>(args, 4) : nullptr;
      const float* const rstd = In<float>(args, 3);
      T* const d_x = Out<T>(args, 0);
      const auto blocks = static_cast<unsigned>(rows);
      constexpr unsigned kThreads = kBlockThreads;
      if (grad_w) {
        float* const partial = reinterpret_cast<float*>(args.workspace);
        const int64_t W = groups * D;  // elements of all scales
        const auto partials = static_cast<unsigned>(NumPartialRows(rows / groups));
        if (rows > 0 && D > 0) {
          TEMPER_RETURN_IF_ERROR(TEMPER_LAUNCH((RmsNormPartialRows<T>), (gpuDim3{partials, BlocksFor(W)}), kThreads,
                                               stream, d_y, x, rstd, rows / groups, W, D, partial));
        }
        TEMPER_RETURN_IF_ERROR(SumColumns<float>(partial, partials, W, acc_w ? In<float>(args, 4 + acc) : nullptr,
                                                 Out<float>(args, 1), stream));
      }
      if (rows == 0) return OkStatus();
      return D % kPack<T> == 0 ? TEMPER_LAUNCH((RmsNormRowGradients<T, kPack<T>>), blocks, kThreads, stream, d_y, x, w,
                                               plus_one, rstd, sum, groups, D, d_x)
                               : TEMPER_LAUNCH((RmsNormRowGradients<T, 1>), blocks, kThreads, stream, d_y, x, w,
                                               plus_one, rstd, sum, groups, D, d_x);
    });
  });
}

}  // namespace temper::gpu
