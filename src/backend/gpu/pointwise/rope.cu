// The table of rotary embeddings and their application. Floor of rope: bytes of x and y; of the table: its bytes, made
// once per micro-batch.
#include <algorithm>

#include "backend/gpu/launch.h"

namespace temper::gpu {
namespace {

// Passed by value: kernel parameters are constant memory. Heads of up to 256 elements.
constexpr int kMostFrequencies = 128;
struct Frequencies {
  double x[kMostFrequencies];
};

// In double, as positions times frequencies lose their fraction in f32 from some thousand on.
__global__ void RopeTableElements(const int* position_T, Frequencies inv_freq, int64_t tokens, int half,
                                  float* table_TE) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= tokens * half) return;
  const int64_t t = i / half, e = i % half;
  const double angle = static_cast<double>(position_T[t]) * inv_freq.x[e];
  table_TE[t * 2 * half + e] = static_cast<float>(cos(angle));
  table_TE[t * 2 * half + half + e] = static_cast<float>(sin(angle));
}

// Element i of x's first halves: (x0, x1) -> (x0 cos - x1 sin, x1 cos + x0 sin); `sign` -1 rotates back.
template <class T>
struct Rotate {
  const T* x;
  const float* table_TE;
  T* y;
  int64_t heads, half;
  float sign;
  template <int kCount>
  __device__ void Run(int64_t i) const {
    const int64_t head = i / half, e = i - head * half, t = head / heads, at = head * 2 * half + e;
    const float* const table = table_TE + t * 2 * half + e;
    float low[kCount], high[kCount], cos[kCount], sin[kCount];
    Load(x + at, low);
    Load(x + at + half, high);
    Load(table, cos);
    Load(table + half, sin);
    for (int k = 0; k < kCount; ++k) {
      const float x0 = low[k], x1 = high[k], s = sign * sin[k];
      low[k] = x0 * cos[k] - x1 * s;
      high[k] = x1 * cos[k] + x0 * s;
    }
    Store(y + at, low);
    Store(y + at + half, high);
  }
};

}  // namespace

std::unique_ptr<Kernel> MakeRopeTable(const KernelSpec& spec, const Context& context) {
  const std::vector<double>& given = spec.attributes.Doubles("inv_freq");
  if (given.size() > kMostFrequencies || spec.outputs[0].dtype != DType::kF32) return nullptr;
  Frequencies inv_freq = {};
  std::copy(given.begin(), given.end(), inv_freq.x);
  const int64_t tokens = spec.inputs[0].shape.elements();
  const int half = static_cast<int>(given.size());
  return MakeKernel([=, stream = context.stream](const KernelArgs& args) {
    if (tokens * half == 0) return OkStatus();
    return TEMPER_LAUNCH(RopeTableElements, BlocksFor(tokens * half), unsigned{kBlockThreads}, stream,
                         In<const int>(args, 0), inv_freq, tokens, half, Out<float>(args, 0));
  });
}

std::unique_ptr<Kernel> MakeRope(const KernelSpec& spec, const Context& context) {
  if (!IsCompute(spec.inputs[0]) || spec.inputs[1].dtype != DType::kF32) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int64_t half = spec.attributes.Int("head_dim") / 2, n = spec.inputs[0].shape.elements() / 2;
    const int64_t heads = spec.inputs[0].shape.columns() / (2 * half);
    const float sign = spec.attributes.Flag("inverse") ? -1.0f : 1.0f;
    return MakeKernel([=, stream = context.stream](const KernelArgs& args) {
      const Rotate<T> rotate = {In<T>(args, 0), In<float>(args, 1), Out<T>(args, 0), heads, half, sign};
      // Elements that are done at once belong to one half of a head.
      if (half % kPack<T> == 0) return Map<kPack<T>>(n, rotate, stream);
      return half % 4 == 0 ? Map<4>(n, rotate, stream) : Map<1>(n, rotate, stream);
    });
  });
}

}  // namespace temper::gpu
