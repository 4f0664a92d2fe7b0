// layer_norm and its backward: a block per row, or per group of one. Floor: bytes of the operands; x is read three
// times, all but the first from the caches; d_w and d_b read d_y and x once more.
#include "backend/gpu/launch.h"
#include "backend/gpu/pointwise/column_sums.h"

namespace temper::gpu {
namespace {

// What scales elements from w on.
template <class T, int kCount>
__device__ void LoadLayerScale(const T* w, bool plus_one, float (&scale)[kCount]) {
  Load(w, scale);
  if (!plus_one) return;
  for (int k = 0; k < kCount; ++k) scale[k] += 1;
}

// Row t has the parameters of group t % groups. b may be nullptr.
template <class T, int kCount>
__global__ void LayerNormRows(const T* x_TD, const T* w_GD, const T* b_GD, bool plus_one, float eps, int64_t groups,
                              int64_t D, T* y_TD, float* mean_T, float* rstd_T) {
  TEMPER_SHARED(float, scratch, kMostWarps);
  const int64_t t = blockIdx.x, step = int64_t{kBlockThreads} * kCount, begin = int64_t{threadIdx.x} * kCount;
  const T *const x = x_TD + t * D, *const w = w_GD + t % groups * D;
  const T* const b = b_GD == nullptr ? nullptr : b_GD + t % groups * D;
  float sum = 0, squares = 0;
  for (int64_t d = begin; d < D; d += step) {
    float a[kCount];
    Load(x + d, a);
    for (int k = 0; k < kCount; ++k) sum += a[k];
  }
  const float mean = ReduceBlock<Sum, float>(sum, scratch) / static_cast<float>(D);
  // About the mean, so that a large mean does not cancel the variance.
  for (int64_t d = begin; d < D; d += step) {
    float a[kCount];
    Load(x + d, a);
    for (int k = 0; k < kCount; ++k) squares = Fma(a[k] - mean, a[k] - mean, squares);
  }
  squares = ReduceBlock<Sum, float>(squares, scratch);
  const float rstd = 1 / Sqrt(squares / static_cast<float>(D) + eps);
  if (threadIdx.x == 0) {
    mean_T[t] = mean;
    rstd_T[t] = rstd;
  }
  for (int64_t d = begin; d < D; d += step) {
    float a[kCount], scale[kCount], shift[kCount] = {};
    Load(x + d, a);
    LoadLayerScale(w + d, plus_one, scale);
    if (b != nullptr) Load(b + d, shift);
    for (int k = 0; k < kCount; ++k) a[k] = Fma((a[k] - mean) * rstd, scale[k], shift[k]);
    Store(y_TD + t * D + d, a);
  }
}

// With g = d_y w and n = (x - mean) rstd:  d_x = rstd (g - mean(g) - n mean(g n)) + acc.
template <class T, int kCount>
__global__ void LayerNormRowGradients(const T* d_y_TD, const T* x_TD, const T* w_GD, bool plus_one, const float* mean_T,
                                      const float* rstd_T, const T* acc_TD, int64_t groups, int64_t D, T* d_x_TD) {
  TEMPER_SHARED(float, scratch, kMostWarps);
  const int64_t t = blockIdx.x, step = int64_t{kBlockThreads} * kCount, begin = int64_t{threadIdx.x} * kCount;
  const T *const x = x_TD + t * D, *const d_y = d_y_TD + t * D, *const w = w_GD + t % groups * D;
  const float mean = mean_T[t], rstd = rstd_T[t];
  float sum_g = 0, sum_gn = 0;
  for (int64_t d = begin; d < D; d += step) {
    float a[kCount], b[kCount], g[kCount];
    Load(x + d, a);
    LoadLayerScale(w + d, plus_one, b);
    Load(d_y + d, g);
    for (int k = 0; k < kCount; ++k) {
      sum_g += g[k] * b[k];
      sum_gn = Fma(g[k] * b[k], (a[k] - mean) * rstd, sum_gn);
    }
  }
  const float mean_g = ReduceBlock<Sum, float>(sum_g, scratch) / static_cast<float>(D);
  const float mean_gn = ReduceBlock<Sum, float>(sum_gn, scratch) / static_cast<float>(D);
  for (int64_t d = begin; d < D; d += step) {
    float a[kCount], b[kCount], g[kCount], sum[kCount] = {};
    Load(x + d, a);
    LoadLayerScale(w + d, plus_one, b);
    Load(d_y + d, g);
    if (acc_TD != nullptr) Load(acc_TD + t * D + d, sum);
    for (int k = 0; k < kCount; ++k) {
      const float inner = Fma((a[k] - mean) * rstd, -mean_gn, g[k] * b[k] - mean_g);
      sum[k] = Fma(inner, rstd, sum[k]);
    }
    Store(d_x_TD + t * D + d, sum);
  }
}

// Partial row p of d_w and d_b (may be nullptr): the sums over rows [p kPartialRows, ...) of d_y n and of d_y. A thread
// per column. A row has D elements, of which every `width` have statistics of their own.
template <class T>
__global__ void LayerNormPartialRows(const T* d_y_TD, const T* x_TD, const float* mean_T, const float* rstd_T,
                                     int64_t rows, int64_t D, int64_t width, float* partial_w_PD, float* partial_b_PD) {
  const int64_t d = int64_t{blockIdx.y} * kBlockThreads + threadIdx.x, p = blockIdx.x;
  if (d >= D) return;
  const int64_t groups = D / width, group = d / width;
  const int64_t end = (p + 1) * kPartialRows < rows ? (p + 1) * kPartialRows : rows;
  float sum_w = 0, sum_b = 0;
  for (int64_t t = p * kPartialRows; t < end; ++t) {
    const int64_t at = t * D + d;
    const float g = Get(d_y_TD + at);
    sum_w = Fma(g, (Get(x_TD + at) - mean_T[t * groups + group]) * rstd_T[t * groups + group], sum_w);
    sum_b += g;
  }
  partial_w_PD[p * D + d] = sum_w;
  if (partial_b_PD != nullptr) partial_b_PD[p * D + d] = sum_b;
}

// Groups with parameters of their own; 1 where all rows, and all groups of a row, share them.
int64_t OwnGroups(const TensorType& w) {
  return w.shape.rank() == 2 ? w.shape[0] : 1;
}

}  // namespace

std::unique_ptr<Kernel> MakeLayerNorm(const KernelSpec& spec, const Context& context) {
  if (!IsCompute(spec.inputs[0]) || spec.inputs[1].dtype != spec.inputs[0].dtype ||
      spec.inputs.back().dtype != spec.inputs[0].dtype) {
    return nullptr;
  }
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const TensorType& scale = spec.inputs[1];
    // A group counts as a row.
    const int64_t rows = spec.outputs[1].shape.elements(), groups = OwnGroups(scale), D = scale.shape.columns();
    const bool shifted = !spec.attributes.Flag("unshifted");
    const auto eps = static_cast<float>(spec.attributes.Double("eps"));
    const bool plus_one = spec.attributes.Flag("plus_one");
    return MakeKernel([=, stream = context.stream](const KernelArgs& args) {
      if (rows == 0) return OkStatus();
      const T *const x = In<T>(args, 0), *const w = In<T>(args, 1), *const b = shifted ? In<T>(args, 2) : nullptr;
      T* const y = Out<T>(args, 0);
      float *const mean = Out<float>(args, 1), *const rstd = Out<float>(args, 2);
      const auto blocks = static_cast<unsigned>(rows);
      constexpr unsigned kThreads = kBlockThreads;
      return D % kPack<T> == 0 ? TEMPER_LAUNCH((LayerNormRows<T, kPack<T>>), blocks, kThreads, stream, x, w, b,
                                               plus_one, eps, groups, D, y, mean, rstd)
                               : TEMPER_LAUNCH((LayerNormRows<T, 1>), blocks, kThreads, stream, x, w, b, plus_one, eps,
                                               groups, D, y, mean, rstd);
    });
  });
}

std::unique_ptr<Kernel> MakeLayerNormBackward(const KernelSpec& spec, const Context& context) {
  if (!IsCompute(spec.inputs[0]) || spec.inputs[2].dtype != spec.inputs[0].dtype) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int64_t rows = spec.inputs[3].shape.elements(), groups = OwnGroups(spec.inputs[2]);
    const int64_t D = spec.inputs[2].shape.columns();
    const bool acc = spec.attributes.Flag("acc"), grad_w = spec.attributes.Flag("grad_w");
    const bool acc_w = spec.attributes.Flag("acc_w"), plus_one = spec.attributes.Flag("plus_one");
    const bool grad_b = grad_w && !spec.attributes.Flag("unshifted");
    TEMPER_CHECK(spec.workspace.v >= (grad_w + grad_b) * NumPartialRows(rows / groups) * groups * D * 4)
        << spec.workspace.v;
    return MakeKernel([=, stream = context.stream](const KernelArgs& args) {
      const T *const d_y = In<T>(args, 0), *const x = In<T>(args, 1), *const w = In<T>(args, 2);
      const float *const mean = In<float>(args, 3), *const rstd = In<float>(args, 4);
      const T* const sum = acc ? In<T>(args, 5) : nullptr;
      T* const d_x = Out<T>(args, 0);
      const auto blocks = static_cast<unsigned>(rows);
      constexpr unsigned kThreads = kBlockThreads;
      if (grad_w) {
        const int64_t W = groups * D;  // elements of a row of the parameters
        const auto partials = static_cast<unsigned>(NumPartialRows(rows / groups));
        float* const partial_w = reinterpret_cast<float*>(args.workspace);
        float* const partial_b = grad_b ? partial_w + partials * W : nullptr;
        if (rows > 0 && D > 0) {
          TEMPER_RETURN_IF_ERROR(TEMPER_LAUNCH((LayerNormPartialRows<T>), (gpuDim3{partials, BlocksFor(W)}), kThreads,
                                               stream, d_y, x, mean, rstd, rows / groups, W, D, partial_w, partial_b));
        }
        const float* const old_w = acc_w ? In<float>(args, 5 + acc) : nullptr;
        const float* const old_b = acc_w && grad_b ? In<float>(args, 6 + acc) : nullptr;
        TEMPER_RETURN_IF_ERROR(SumColumns<float>(partial_w, partials, W, old_w, Out<float>(args, 1), stream));
        if (grad_b) {
          TEMPER_RETURN_IF_ERROR(SumColumns<float>(partial_b, partials, W, old_b, Out<float>(args, 2), stream));
        }
      }
      if (rows == 0) return OkStatus();
      return D % kPack<T> == 0 ? TEMPER_LAUNCH((LayerNormRowGradients<T, kPack<T>>), blocks, kThreads, stream, d_y, x,
                                               w, plus_one, mean, rstd, sum, groups, D, d_x)
                               : TEMPER_LAUNCH((LayerNormRowGradients<T, 1>), blocks, kThreads, stream, d_y, x, w,
                                               plus_one, mean, rstd, sum, groups, D, d_x);
    });
  });
}

}  // namespace temper::gpu
