// adamw, to the bit as backend/cpu/pointwise/adamw_step.h prescribes: each line of the step one IEEE operation of f32.
// Floor: bytes of master, gradient and moments (28 per element and the weight's).
#include "backend/gpu/launch.h"

namespace temper::gpu {
namespace {

struct Constants {
  float beta1, one_minus_beta1, beta2, one_minus_beta2, eps;
  double weight_decay, lr_factor;
};

template <class W>
struct Tensors {
  const float *master, *gradient, *moment1, *moment2;
  float *new_master, *new_moment1, *new_moment2;
  W* weight;  // nullptr: none
};

constexpr int kPerThread = 4;  // 16 bytes of f32

template <int kCount, class W>
__device__ void Update(const Tensors<W>& t, const Constants& c, float clip, float root_correction2, float decay,
                       float minus_step, int64_t i) {
  float w[kCount], g[kCount], m[kCount], v[kCount];
  Load(t.master + i, w);
  Load(t.gradient + i, g);
  Load(t.moment1 + i, m);
  Load(t.moment2 + i, v);
  for (int k = 0; k < kCount; ++k) {
    const float clipped = g[k] * clip;
    m[k] = Fma(c.beta1, m[k], c.one_minus_beta1 * clipped);
    const float q = clipped * clipped;
    v[k] = Fma(c.beta2, v[k], c.one_minus_beta2 * q);
    const float d = Sqrt(v[k]) / root_correction2 + c.eps;
    w[k] = Fma(minus_step, m[k] / d, decay * w[k]);
  }
  Store(t.new_master + i, w);
  Store(t.new_moment1 + i, m);
  Store(t.new_moment2 + i, v);
  if (t.weight != nullptr) Store(t.weight + i, w);
}

template <class W>
__global__ void AdamwElements(int64_t n, Tensors<W> tensors, Constants c, const float* clip_2, const double* scalars) {
  TEMPER_SHARED(float, of_step,
                3);  // computed in double and rounded once: by one thread, doubles being slow on many GPUs
  if (threadIdx.x == 0) {
    const double learning_rate = scalars[kScalarLearningRate] * c.lr_factor;
    of_step[0] = static_cast<float>(sqrt(scalars[kScalarBiasCorrection2]));
    of_step[1] = static_cast<float>(1 - learning_rate * c.weight_decay);
    of_step[2] = static_cast<float>(-learning_rate / scalars[kScalarBiasCorrection1]);
  }
  __syncthreads();
  const float clip = clip_2[0], root = of_step[0], decay = of_step[1], minus_step = of_step[2];
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kPerThread;
  if (i + kPerThread <= n) {
    Update<kPerThread>(tensors, c, clip, root, decay, minus_step, i);
  } else {
    for (int64_t k = i; k < n; ++k) Update<1>(tensors, c, clip, root, decay, minus_step, k);
  }
}

}  // namespace

std::unique_ptr<Kernel> MakeAdamw(const KernelSpec& spec, const Context& context) {
  const bool weight = spec.attributes.Flag("weight");
  if (weight && !IsCompute(spec.outputs[3])) return nullptr;
  return DispatchFloat(weight ? spec.outputs[3].dtype.dtype() : DType::kF32, [&]<class W>() {
    const int64_t n = spec.outputs[0].shape.elements();
    const double beta1 = spec.attributes.Double("beta1"), beta2 = spec.attributes.Double("beta2");
    const Constants constants = {.beta1 = static_cast<float>(beta1),
                                 .one_minus_beta1 = static_cast<float>(1 - beta1),
                                 .beta2 = static_cast<float>(beta2),
                                 .one_minus_beta2 = static_cast<float>(1 - beta2),
                                 .eps = static_cast<float>(spec.attributes.Double("eps")),
                                 .weight_decay = spec.attributes.Double("weight_decay"),
                                 .lr_factor = spec.attributes.DoubleOr("lr_factor", 1)};
    return MakeKernel([=, stream = context.stream](const KernelArgs& args) {
      if (n == 0) return OkStatus();
      const Tensors<W> tensors = {
          In<float>(args, 0),  In<float>(args, 1),  In<float>(args, 2),  In<float>(args, 3),
          Out<float>(args, 0), Out<float>(args, 1), Out<float>(args, 2), weight ? Out<W>(args, 3) : nullptr};
      return TEMPER_LAUNCH((AdamwElements<W>), BlocksFor((n + kPerThread - 1) / kPerThread), unsigned{kBlockThreads},
                           stream, n, tensors, constants, In<float>(args, 4), In<double>(args, 5));
    });
  });
}

}  // namespace temper::gpu
