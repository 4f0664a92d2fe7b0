// sgd, to the bit as backend/cpu/pointwise/sgd_step.h prescribes: each line of the step one IEEE operation of f32.
// Floor: bytes of master, gradient and momentum (20 per element and the weight's; 12 without momentum).
#include "backend/gpu/launch.h"

namespace temper::gpu {
namespace {

struct Constants {
  float weight_decay, momentum;
  bool nesterov;
  double lr_factor;
};

template <class W>
struct Tensors {
  const float *master, *gradient, *momentum;
  float *new_master, *new_momentum;  // momentum: nullptr where there is none
  W* weight;                         // nullptr: none
};

constexpr int kPerThread = 4;  // 16 bytes of f32

template <int kCount, class W>
__device__ void Update(const Tensors<W>& t, const Constants& c, float clip, float minus_rate, int64_t i) {
  float w[kCount], g[kCount], b[kCount];
  Load(t.master + i, w);
  Load(t.gradient + i, g);
  for (int k = 0; k < kCount; ++k) g[k] = Fma(c.weight_decay, w[k], g[k] * clip);
  if (t.momentum != nullptr) {
    Load(t.momentum + i, b);
    for (int k = 0; k < kCount; ++k) {
      b[k] = Fma(c.momentum, b[k], g[k]);
      g[k] = c.nesterov ? Fma(c.momentum, b[k], g[k]) : b[k];
    }
    Store(t.new_momentum + i, b);
  }
  for (int k = 0; k < kCount; ++k) w[k] = Fma(minus_rate, g[k], w[k]);
  Store(t.new_master + i, w);
  if (t.weight != nullptr) Store(t.weight + i, w);
}

template <class W>
__global__ void SgdElements(int64_t n, Tensors<W> tensors, Constants c, const float* clip_2, const double* scalars) {
  const float clip = clip_2[0], minus_rate = static_cast<float>(-scalars[kScalarLearningRate] * c.lr_factor);
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kPerThread;
  if (i + kPerThread <= n) {
    Update<kPerThread>(tensors, c, clip, minus_rate, i);
  } else {
    for (int64_t k = i; k < n; ++k) Update<1>(tensors, c, clip, minus_rate, k);
  }
}

}  // namespace

std::unique_ptr<Kernel> MakeSgd(const KernelSpec& spec, const Context& context) {
  const bool weight = spec.attributes.Flag("weight"), buffer = spec.attributes.Flag("buffer");
  if (weight && !IsCompute(spec.outputs.back())) return nullptr;
  return DispatchFloat(weight ? spec.outputs.back().dtype.dtype() : DType::kF32, [&]<class W>() {
    const int64_t n = spec.outputs[0].shape.elements();
    const Constants constants = {.weight_decay = static_cast<float>(spec.attributes.Double("weight_decay")),
                                 .momentum = static_cast<float>(spec.attributes.Double("momentum")),
                                 .nesterov = spec.attributes.Flag("nesterov"),
                                 .lr_factor = spec.attributes.DoubleOr("lr_factor", 1)};
    return MakeKernel([=, stream = context.stream](const KernelArgs& args) {
      if (n == 0) return OkStatus();
      const int clip = buffer ? 3 : 2;
      const Tensors<W> tensors = {.master = In<float>(args, 0),
                                  .gradient = In<float>(args, 1),
                                  .momentum = buffer ? In<float>(args, 2) : nullptr,
                                  .new_master = Out<float>(args, 0),
                                  .new_momentum = buffer ? Out<float>(args, 1) : nullptr,
                                  .weight = weight ? Out<W>(args, buffer ? 2 : 1) : nullptr};
      return TEMPER_LAUNCH((SgdElements<W>), BlocksFor((n + kPerThread - 1) / kPerThread), unsigned{kBlockThreads},
                           stream, n, tensors, constants, In<float>(args, clip), In<double>(args, clip + 1));
    });
  });
}

}  // namespace temper::gpu
