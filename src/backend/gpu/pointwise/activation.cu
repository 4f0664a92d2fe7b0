// relu, its square, gelu, glu and their backwards, and softcap. Floor: bytes of the operands; the arithmetic (some 20
// operations per element) hides behind them.
#include "backend/gpu/launch.h"

namespace temper::gpu {
namespace {

// The logistic function s and 1 - s, both without cancellation at any x. Within 8 roundoffs: exp 4, sum 1, reciprocal
// 2, product 1. Two divisions as IEEE has them, each with a branch, were half of the instructions of swiglu's backward
// pass.
struct Logistic {
  float s, complement;
};
__device__ Logistic LogisticOf(float x) {
  const float e = Exp(x > 0 ? -x : x);  // <= 1: no overflow
  const float large = Reciprocal(1 + e), small = e * large;
  return x > 0 ? Logistic{large, small} : Logistic{small, large};
}

// NaN passes, as in torch.
struct ReluOf {
  __device__ float operator()(float x) const { return x < 0 ? 0 : x; }
};
struct ReluSlope {
  __device__ float operator()(float d_y, float y) const { return y > 0 ? d_y : 0; }
};

struct ReluSquaredOf {
  __device__ float operator()(float x) const { return x < 0 ? 0 : x * x; }
};
struct ReluSquaredSlope {
  __device__ float operator()(float d_y, float x) const { return x > 0 ? (x + x) * d_y : 0; }
};

constexpr float kRootHalf = 0.70710678f;
constexpr float kDensityAtZero = 0.39894228f;  // 1 / sqrt(2 pi)

// Phi(x). What f32 cannot hold of x / sqrt(2) is put back to first order: erfc would multiply it by x^2.
__device__ float Cumulative(float x) {
  const float z = x * kRootHalf, square = z * z;
  if (!(square < 100)) return 0.5f * Erfc(-z);
  const float off = Fma(x, kRootHalf, -z) + x * 1.2101617e-8f;  // sqrt(1/2) - kRootHalf
  return 0.5f * (Erfc(-z) + Exp(-square) * 1.1283792f * off);   // 2 / sqrt(pi)
}
__device__ float Density(float x) {
  const float square = x * x;
  const float low = Fma(x, x, -square);  // what rounding took from the square
  return square < 250 ? Exp(-0.5f * square) * (1 - 0.5f * low) * kDensityAtZero : 0;
}
struct GeluErf {
  __device__ float operator()(float x) const { return x * Cumulative(x); }
};
struct GeluErfSlope {
  __device__ float operator()(float d_y, float x) const { return d_y * Fma(x, Density(x), Cumulative(x)); }
};

// (1 + tanh z) / 2 is the logistic function at 2z, 2z = kTwiceRoot * (x + kCubic x^3).
constexpr float kTwiceRoot = 1.59576912f;  // 2 sqrt(2/pi)
constexpr float kCubic = 0.044715f;
struct GeluTanh {
  __device__ float operator()(float x) const { return x * LogisticOf(kTwiceRoot * Fma(x * x * x, kCubic, x)).s; }
};
// s + x s (1 - s) (2z)'.
struct GeluTanhSlope {
  __device__ float operator()(float d_y, float x) const {
    const float a = x > 30 ? 30 : x < -30 ? -30 : x;  // beyond, the slope is 0 or 1, and powers of x might overflow
    const float square = a * a;
    const Logistic l = LogisticOf(kTwiceRoot * Fma(square * a, kCubic, a));
    const float inner = kTwiceRoot * Fma(square, 3 * kCubic, 1.0f);
    return d_y * Fma(a * l.complement * inner, l.s, l.s);
  }
};

struct SiluTimes {
  __device__ float operator()(float gate, float up) const { return gate * LogisticOf(gate).s * up; }
};
struct SigmoidTimes {
  __device__ float operator()(float gate, float up) const { return LogisticOf(gate).s * up; }
};
struct Times {
  __device__ float operator()(float gate, float up) const { return gate * up; }
};
template <class Gelu>
struct GeluTimes {
  __device__ float operator()(float gate, float up) const { return Gelu()(gate) * up; }
};

template <class T, class F>
struct Unary {
  const T* x;
  T* y;
  template <int kCount>
  __device__ void Run(int64_t i) const {
    float u[kCount];
    Load(x + i, u);
    for (int k = 0; k < kCount; ++k) u[k] = F()(u[k]);
    Store(y + i, u);
  }
};
template <class T, class F>
struct Binary {
  const T *a, *b;
  T* y;
  template <int kCount>
  __device__ void Run(int64_t i) const {
    float u[kCount], v[kCount];
    Load(a + i, u);
    Load(b + i, v);
    for (int k = 0; k < kCount; ++k) u[k] = F()(u[k], v[k]);
    Store(y + i, u);
  }
};

// What the gradient of a glu needs of its gate: the activation's value and its slope, which share their exponential.
struct Gate {
  float value, slope;
};
// silu'(x) = s (1 + x (1 - s)).
struct SiluGate {
  __device__ Gate operator()(float x) const {
    const Logistic l = LogisticOf(x);
    return {l.s * x, l.s * Fma(x, l.complement, 1.0f)};
  }
};
struct SigmoidGate {
  __device__ Gate operator()(float x) const {
    const Logistic l = LogisticOf(x);
    return {l.s, l.s * l.complement};
  }
};
struct IdentityGate {
  __device__ Gate operator()(float x) const { return {x, 1}; }
};
template <class Gelu, class Slope>
struct GeluGate {
  __device__ Gate operator()(float x) const { return {Gelu()(x), Slope()(1, x)}; }
};

template <class T, class GateOf>
struct GluGradient {
  const T *d_h, *gate, *up;
  T *d_gate, *d_up;
  template <int kCount>
  __device__ void Run(int64_t i) const {
    float d[kCount], a[kCount], u[kCount];
    Load(d_h + i, d);
    Load(gate + i, a);
    Load(up + i, u);
    for (int k = 0; k < kCount; ++k) {
      const Gate g = GateOf()(a[k]);
      const float d_up = d[k] * g.value;
      d[k] = d[k] * g.slope * u[k];
      u[k] = d_up;
    }
    Store(d_gate + i, d);
    Store(d_up + i, u);
  }
};

template <class T>
struct CapAt {
  const T* x;
  T* y;
  float cap;
  template <int kCount>
  __device__ void Run(int64_t i) const {
    float u[kCount];
    Load(x + i, u);
    for (int k = 0; k < kCount; ++k) u[k] = cap * Tanh(u[k] / cap);
    Store(y + i, u);
  }
};

template <class GateOf>
std::unique_ptr<Kernel> MakeGradient(const KernelSpec& spec, const Context& context) {
  if (!IsCompute(spec.outputs[0])) return nullptr;
  return DispatchFloat(spec.outputs[0].dtype, [&]<class T>() {
    return MakeKernel([n = spec.outputs[0].shape.elements(), stream = context.stream](const KernelArgs& args) {
      const GluGradient<T, GateOf> gradient = {In<T>(args, 0), In<T>(args, 1), In<T>(args, 2), Out<T>(args, 0),
                                               Out<T>(args, 1)};
      return Map<kPack<T>>(n, gradient, stream);
    });
  });
}
template <class F>
std::unique_ptr<Kernel> MakeUnary(const KernelSpec& spec, const Context& context) {
  if (!IsCompute(spec.outputs[0])) return nullptr;
  return DispatchFloat(spec.outputs[0].dtype, [&]<class T>() {
    return MakeKernel([n = spec.outputs[0].shape.elements(), stream = context.stream](const KernelArgs& args) {
      return Map<kPack<T>>(n, Unary<T, F>{In<T>(args, 0), Out<T>(args, 0)}, stream);
    });
  });
}
template <class F>
std::unique_ptr<Kernel> MakeBinary(const KernelSpec& spec, const Context& context) {
  if (!IsCompute(spec.outputs[0])) return nullptr;
  return DispatchFloat(spec.outputs[0].dtype, [&]<class T>() {
    return MakeKernel([n = spec.outputs[0].shape.elements(), stream = context.stream](const KernelArgs& args) {
      return Map<kPack<T>>(n, Binary<T, F>{In<T>(args, 0), In<T>(args, 1), Out<T>(args, 0)}, stream);
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> MakeRelu(const KernelSpec& spec, const Context& context) {
  return MakeUnary<ReluOf>(spec, context);
}
std::unique_ptr<Kernel> MakeReluBackward(const KernelSpec& spec, const Context& context) {
  return MakeBinary<ReluSlope>(spec, context);
}
std::unique_ptr<Kernel> MakeReluSquared(const KernelSpec& spec, const Context& context) {
  return MakeUnary<ReluSquaredOf>(spec, context);
}
std::unique_ptr<Kernel> MakeReluSquaredBackward(const KernelSpec& spec, const Context& context) {
  return MakeBinary<ReluSquaredSlope>(spec, context);
}
std::unique_ptr<Kernel> MakeGelu(const KernelSpec& spec, const Context& context) {
  return spec.attributes.Flag("tanh") ? MakeUnary<GeluTanh>(spec, context) : MakeUnary<GeluErf>(spec, context);
}
std::unique_ptr<Kernel> MakeGeluBackward(const KernelSpec& spec, const Context& context) {
  return spec.attributes.Flag("tanh") ? MakeBinary<GeluTanhSlope>(spec, context)
                                      : MakeBinary<GeluErfSlope>(spec, context);
}
std::unique_ptr<Kernel> MakeGlu(const KernelSpec& spec, const Context& context) {
  if (spec.attributes.Flag("clamped")) return nullptr;
  if (spec.attributes.Flag("sigmoid")) return MakeBinary<SigmoidTimes>(spec, context);
  if (spec.attributes.Flag("identity")) return MakeBinary<Times>(spec, context);
  if (!spec.attributes.Flag("gelu")) return MakeBinary<SiluTimes>(spec, context);
  return spec.attributes.Flag("tanh") ? MakeBinary<GeluTimes<GeluTanh>>(spec, context)
                                      : MakeBinary<GeluTimes<GeluErf>>(spec, context);
}
std::unique_ptr<Kernel> MakeGluBackward(const KernelSpec& spec, const Context& context) {
  if (spec.attributes.Flag("clamped")) return nullptr;
  if (spec.attributes.Flag("sigmoid")) return MakeGradient<SigmoidGate>(spec, context);
  if (spec.attributes.Flag("identity")) return MakeGradient<IdentityGate>(spec, context);
  if (!spec.attributes.Flag("gelu")) return MakeGradient<SiluGate>(spec, context);
  return spec.attributes.Flag("tanh") ? MakeGradient<GeluGate<GeluTanh, GeluTanhSlope>>(spec, context)
                                      : MakeGradient<GeluGate<GeluErf, GeluErfSlope>>(spec, context);
}

std::unique_ptr<Kernel> MakeSoftcap(const KernelSpec& spec, const Context& context) {
  if (!IsCompute(spec.outputs[0])) return nullptr;
  return DispatchFloat(spec.outputs[0].dtype, [&]<class T>() {
    const auto cap = static_cast<float>(spec.attributes.Double("cap"));
    return MakeKernel([=, n = spec.outputs[0].shape.elements(), stream = context.stream](const KernelArgs& args) {
      return Map<kPack<T>>(n, CapAt<T>{In<T>(args, 0), Out<T>(args, 0), cap}, stream);
    });
  });
}

}  // namespace temper::gpu
