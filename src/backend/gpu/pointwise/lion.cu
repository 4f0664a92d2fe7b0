// lion, to the bit as backend/cpu/pointwise/lion_step.h prescribes: each line of the step one IEEE operation of f32.
// Floor: bytes of master, gradient and mean (20 per element and the weight's).
#include "backend/gpu/launch.h"

namespace temper::gpu {
namespace {

struct Constants {
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  double weight_decay, lr_factor;
};

template <class W>
struct Tensors {
  const float *master, *gradient, *mean;
  float *new_master, *new_mean;
  W* weight;  // nullptr: none
};

constexpr int kPerThread = 4;  // 16 bytes of f32

template <int kCount, class W>
__device__ void Update(const Tensors<W>& t, const Constants& c, float clip, float minus_rate, float keep, int64_t i) {
  float w[kCount], g[kCount], m[kCount];
  Load(t.master + i, w);
  Load(t.gradient + i, g);
  Load(t.mean + i, m);
  for (int k = 0; k < kCount; ++k) {
    const float clipped = g[k] * clip, d = Fma(c.beta1, m[k], c.one_minus_beta1 * clipped);
    const float sign = d > 0 ? 1.0f : d < 0 ? -1.0f : 0.0f;
    w[k] = Fma(minus_rate, sign, keep * w[k]);
    m[k] = Fma(c.beta2, m[k], c.one_minus_beta2 * clipped);
  }
  Store(t.new_mean + i, m);
  Store(t.new_master + i, w);
  if (t.weight != nullptr) Store(t.weight + i, w);
}

template <class W>
__global__ void LionElements(int64_t n, Tensors<W> tensors, Constants c, const float* clip_2, const double* scalars) {
  const double rate = scalars[kScalarLearningRate] * c.lr_factor;
  const float clip = clip_2[0], minus_rate = static_cast<float>(-rate),
              keep = static_cast<float>(1 - rate * c.weight_decay);
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kPerThread;
  if (i + kPerThread <= n) {
    Update<kPerThread>(tensors, c, clip, minus_rate, keep, i);
  } else {
    for (int64_t k = i; k < n; ++k) Update<1>(tensors, c, clip, minus_rate, keep, k);
  }
}

}  // namespace

std::unique_ptr<Kernel> MakeLion(const KernelSpec& spec, const Context& context) {
  const bool weight = spec.attributes.Flag("weight");
  if (weight && !IsCompute(spec.outputs.back())) return nullptr;
  return DispatchFloat(weight ? spec.outputs.back().dtype.dtype() : DType::kF32, [&]<class W>() {
    const int64_t n = spec.outputs[0].shape.elements();
    const double beta1 = spec.attributes.Double("beta1"), beta2 = spec.attributes.Double("beta2");
    const Constants constants = {.beta1 = static_cast<float>(beta1),
                                 .one_minus_beta1 = static_cast<float>(1 - beta1),
                                 .beta2 = static_cast<float>(beta2),
                                 .one_minus_beta2 = static_cast<float>(1 - beta2),
                                 .weight_decay = spec.attributes.Double("weight_decay"),
                                 .lr_factor = spec.attributes.DoubleOr("lr_factor", 1)};
    return MakeKernel([=, stream = context.stream](const KernelArgs& args) {
      if (n == 0) return OkStatus();
      const Tensors<W> tensors = {.master = In<float>(args, 0),
                                  .gradient = In<float>(args, 1),
                                  .mean = In<float>(args, 2),
                                  .new_master = Out<float>(args, 0),
                                  .new_mean = Out<float>(args, 1),
                                  .weight = weight ? Out<W>(args, 2) : nullptr};
      return TEMPER_LAUNCH((LionElements<W>), BlocksFor((n + kPerThread - 1) / kPerThread), unsigned{kBlockThreads},
                           stream, n, tensors, constants, In<float>(args, 3), In<double>(args, 4));
    });
  });
}

}  // namespace temper::gpu
