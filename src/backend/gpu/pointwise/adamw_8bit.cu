// adamw_8bit, to the bit as backend/cpu/pointwise/adamw_step.h and tensor/dynamic_blocks.h prescribe: 256 threads for
// the 256 elements of a block of states. Floor: bytes of master, gradient and moments (16 per element and the
// weight's).
#include <bit>

#include "backend/gpu/launch.h"
#include "tensor/dynamic_map.h"

namespace temper::gpu {
namespace {

// Where kernels find the maps.
__device__ const std::array<float, 256> kDeviceSignedMap = kSignedDynamicMap;
__device__ const std::array<float, 256> kDeviceUnsignedMap = kUnsignedDynamicMap;

constexpr int kBlockBytes = kBlockThreads + 4;  // codes, then their absmax

struct Constants {
  float beta1, one_minus_beta1, beta2, one_minus_beta2, eps;
  double weight_decay, lr_factor;
};

template <class W>
struct Tensors {
  const float *master, *gradient;
  const std::byte *moment1, *moment2;
  float* new_master;
  std::byte *new_moment1, *new_moment2;
  W* weight;  // nullptr: none
};

__device__ float ReadMoment(const std::byte* block, Shared<float> numbers) {
  return numbers[static_cast<int>(block[threadIdx.x])] * *reinterpret_cast<const float*>(block + kBlockThreads);
}

// `x`: 0 of an element that is not there. REQUIRES: all threads of the block call it.
__device__ void WriteMoment(float x, Shared<float> numbers, Shared<uint32_t> scratch, bool is_there, std::byte* block) {
  const uint32_t most = ReduceBlock<Max>(__builtin_bit_cast(uint32_t, x) & 0x7FFFFFFFu, scratch);
  const float absmax = __builtin_bit_cast(float, most);
  const float scaled = x * (1 / (absmax < 1e-38f ? 1e-38f : absmax));
  int code = 0;  // borders, halfway between numbers, that are below `scaled`
  for (int step = kBlockThreads / 2; step > 0; step /= 2) {
    const int at = code + step - 1;
    if ((numbers[at] + numbers[at + 1]) / 2 < scaled) code += step;
  }
  const bool finite = most < 0x7F800000u;
  block[threadIdx.x] = static_cast<std::byte>(is_there && finite ? code : 0);
  if (threadIdx.x == 0) *reinterpret_cast<float*>(block + kBlockThreads) = absmax;
}

template <class W>
__global__ void Adamw8bitBlocks(int64_t n, Tensors<W> t, Constants c, const float* clip_2, const double* scalars) {
  TEMPER_SHARED(float, of_step, 3);  // computed in double and rounded once: by one thread
  TEMPER_SHARED(float, first, kBlockThreads);
  TEMPER_SHARED(float, second, kBlockThreads);
  TEMPER_SHARED(uint32_t, scratch, kMostWarps);
  first[static_cast<int>(threadIdx.x)] = kDeviceSignedMap[threadIdx.x];
  second[static_cast<int>(threadIdx.x)] = kDeviceUnsignedMap[threadIdx.x];
  if (threadIdx.x == 0) {
    const double learning_rate = scalars[kScalarLearningRate] * c.lr_factor;
    of_step[0] = static_cast<float>(sqrt(scalars[kScalarBiasCorrection2]));
    of_step[1] = static_cast<float>(1 - learning_rate * c.weight_decay);
    of_step[2] = static_cast<float>(-learning_rate / scalars[kScalarBiasCorrection1]);
  }
  __syncthreads();
  const int64_t i = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x, at = int64_t{blockIdx.x} * kBlockBytes;
  const bool is_there = i < n;
  float m = 0, v = 0;
  if (is_there) {
    const float g = t.gradient[i] * clip_2[0];
    m = Fma(c.beta1, ReadMoment(t.moment1 + at, first), c.one_minus_beta1 * g);
    const float q = g * g;
    v = Fma(c.beta2, ReadMoment(t.moment2 + at, second), c.one_minus_beta2 * q);
    const float d = Sqrt(v) / of_step[0] + c.eps, w = Fma(of_step[2], m / d, of_step[1] * t.master[i]);
    t.new_master[i] = w;
    if (t.weight != nullptr) Put(t.weight + i, w);
  }
  WriteMoment(m, first, scratch, is_there, t.new_moment1 + at);
  WriteMoment(v, second, scratch, is_there, t.new_moment2 + at);
}

}  // namespace

std::unique_ptr<Kernel> MakeAdamw8bit(const KernelSpec& spec, const Context& context) {
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
      const Tensors<W> tensors = {.master = In<float>(args, 0),
                                  .gradient = In<float>(args, 1),
                                  .moment1 = args.inputs[2],
                                  .moment2 = args.inputs[3],
                                  .new_master = Out<float>(args, 0),
                                  .new_moment1 = args.outputs[1],
                                  .new_moment2 = args.outputs[2],
                                  .weight = weight ? Out<W>(args, 3) : nullptr};
      return TEMPER_LAUNCH((Adamw8bitBlocks<W>), BlocksFor(n), unsigned{kBlockThreads}, stream, n, tensors, constants,
                           In<float>(args, 4), In<double>(args, 5));
    });
  });
}

}  // namespace temper::gpu
