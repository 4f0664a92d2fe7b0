// Instructions on f32 and f64 (PTX ISA, "Floating-Point Instructions").
// Approximate instructions are as wrong as the ISA allows.
#include "ptx_floating_point.h"

#include <algorithm>
#include <cfenv>

#include "ptx_decoding.h"
#include "ptx_lanes.h"

namespace temper::ptx {
namespace {

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return a + b;
  }
};
struct Subtract {
  template <class T>
  T operator()(T a, T b) const {
    return a - b;
  }
};
struct Multiply {
  template <class T>
  T operator()(T a, T b) const {
    return a * b;
  }
};
struct Divide {
  template <class T>
  T operator()(T a, T b) const {
    return a / b;
  }
};
struct MultiplyAdd {
  template <class T>
  T operator()(T a, T b, T c) const {
    return std::fma(a, b, c);
  }
};
struct SquareRoot {
  template <class T>
  T operator()(T a) const {
    return std::sqrt(a);
  }
};
struct Reciprocal {
  template <class T>
  T operator()(T a) const {
    return 1 / a;
  }
};
// x with the largest relative error that the ISA's tables allow, up or down depending on the operand's bits.
float Rough(double x, float operand, double error) {
  if (x == 0 || x != x || std::isinf(x)) return static_cast<float>(x);
  const uint32_t hash = std::bit_cast<uint32_t>(operand) * 0x9E3779B1u;
  // The allowed error includes rounding to f32.
  return static_cast<float>(x * (1 + (error - 0x1p-24) * (static_cast<double>(hash >> 8) * 0x1p-23 - 1)));
}

struct RoughDivide {
  float operator()(float a, float b) const {
    return Rough(static_cast<double>(a) / static_cast<double>(b), b, 0x1p-22);
  }
};
struct RoughInverse {
  float operator()(float a) const { return Rough(1 / static_cast<double>(a), a, 0x1p-23); }
};
struct Exp2 {
  float operator()(float a) const { return a == 0 ? 1.0f : Rough(std::exp2(static_cast<double>(a)), a, 0x1p-22); }
};
// A number rather than NaN, +0 rather than -0.
struct Least {
  template <class T>
  T operator()(T a, T b) const {
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return std::signbit(a) ? a : b;
    return a < b ? a : b;
  }
};
struct Most {
  template <class T>
  T operator()(T a, T b) const {
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return std::signbit(a) ? b : a;
    return a > b ? a : b;
  }
};
struct LeastOrNan {
  template <class T>
  T operator()(T a, T b) const {
    return a != a || b != b ? a + b : Least()(a, b);
  }
};
struct MostOrNan {
  template <class T>
  T operator()(T a, T b) const {
    return a != a || b != b ? a + b : Most()(a, b);
  }
};
// The upper half of 1 / a.
struct RoughReciprocal {
  double operator()(double a) const {
    if (std::fabs(a) < 0x1p-1022) a = std::copysign(0.0, a);
    const double d = 1 / a;
    if (std::fabs(d) < 0x1p-1022) return std::copysign(0.0, d);
    return std::bit_cast<double>(std::bit_cast<uint64_t>(d) & 0xFFFFFFFF00000000u);
  }
};
struct Negate {
  template <class T>
  T operator()(T a) const {
    return -a;
  }
};
struct Absolute {
  template <class T>
  T operator()(T a) const {
    return std::fabs(a);
  }
};
// a's sign on b.
struct CopySign {
  template <class T>
  T operator()(T a, T b) const {
    return std::copysign(b, a);
  }
};

// Instruction::number: the rounding of operands and results.
enum Mode : int64_t { kNearest = 0, kTowardsZero = 1, kDown = 2, kUp = 3, kRounding = 3, kFlushes = 4, kSaturates = 8 };

// Rounds as the instruction says while it lives.
class Rounding {
 public:
  explicit Rounding(int64_t mode) : mode_(mode & kRounding) {
    if (mode_ != kNearest)
      std::fesetround(mode_ == kTowardsZero ? FE_TOWARDZERO : mode_ == kDown ? FE_DOWNWARD : FE_UPWARD);
  }
  ~Rounding() {
    if (mode_ != kNearest) std::fesetround(FE_TONEAREST);
  }

 private:
  const int64_t mode_;
};

template <class T>
T Finished(T x, int64_t mode) {
  if (mode & kFlushes) x = Flushed(x);
  if constexpr (sizeof(T) == 4) {
    if (mode & kSaturates) return Saturated(x);
  }
  return Canonical(x);
}

// With kModes through volatile variables; otherwise the compiler would compute before rounding is set.
template <class F, class T, bool kModes, int kOperands>
void Float(Warp& warp, const Instruction& i, Mask mask) {
  const auto* a = warp.In<T>(i.a);
  const auto* b = kOperands > 1 ? warp.In<T>(i.b) : a;
  const auto* c = kOperands > 2 ? warp.In<T>(i.c) : a;
  auto* d = warp.Out<T>(i.d);
  const auto apply = [](T x, [[maybe_unused]] T y, [[maybe_unused]] T z) {
    if constexpr (kOperands == 1) return F()(x);
    if constexpr (kOperands == 2) return F()(x, y);
    if constexpr (kOperands == 3) return F()(x, y, z);
  };
  if constexpr (!kModes) {
    ForLanes(mask, [&](int lane) { d[lane] = Canonical(apply(a[lane], b[lane], c[lane])); });
  } else {
    const Rounding rounding(i.number);
    const bool flushes = (i.number & kFlushes) != 0;
    ForLanes(mask, [&](int lane) {
      volatile T x = flushes ? Flushed(a[lane]) : a[lane], y = flushes ? Flushed(b[lane]) : b[lane],
                 z = flushes ? Flushed(c[lane]) : c[lane];
      volatile T result = apply(x, y, z);
      d[lane] = Finished<T>(result, i.number);
    });
  }
}
// Float<MultiplyAdd, float, false, 3> without a call of the library for each lane.
[[gnu::target("avx2,fma")]] void MultiplyAddByVectors(Warp& warp, const Instruction& i, Mask mask) {
  float a[kLanes], b[kLanes], c[kLanes];
  std::copy_n(warp.In<float>(i.a), kLanes, a);
  std::copy_n(warp.In<float>(i.b), kLanes, b);
  std::copy_n(warp.In<float>(i.c), kLanes, c);
  for (int lane = 0; lane < kLanes; ++lane) a[lane] = Canonical(__builtin_fmaf(a[lane], b[lane], c[lane]));
  auto* d = warp.Out<float>(i.d);
  if (mask == kAllLanes) {
    std::copy_n(a, kLanes, d);
  } else {
    ForLanes(mask, [&](int lane) { d[lane] = a[lane]; });
  }
}
template <class F, int kOperands>
Handler FloatOf(Type type, int64_t mode) {
  if (type.bytes == 8) return mode == 0 ? &Float<F, double, false, kOperands> : &Float<F, double, true, kOperands>;
  if (type.bytes == 4) return mode == 0 ? &Float<F, float, false, kOperands> : &Float<F, float, true, kOperands>;
  return nullptr;
}

Handler MultiplyAddOf(Type type, int64_t mode) {
  static const bool vectors = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (type.bytes == 4 && mode == 0 && vectors) return &MultiplyAddByVectors;
  return FloatOf<MultiplyAdd, 3>(type, mode);
}

template <class F>
Handler SingleOf(int64_t mode) {
  return mode == 0 ? &Float<F, float, false, 1> : &Float<F, float, true, 1>;
}

template <class F>
Handler PairOf(int64_t mode) {
  return mode == 0 ? &Float<F, float, false, 2> : &Float<F, float, true, 2>;
}

// Signs are bits: NaNs keep theirs.
template <class F, class T>
void Sign(Warp& warp, const Instruction& i, Mask mask) {
  const auto* a = warp.In<T>(i.a);
  auto* d = warp.Out<T>(i.d);
  const bool flushes = (i.number & kFlushes) != 0;
  ForLanes(mask, [&](int lane) { d[lane] = F()(flushes ? Flushed(a[lane]) : a[lane]); });
}

bool DecodeExp2(Decoding& d) {
  if (d.name() != "ex2") return false;
  d.Require(d.Take("approx"), "it is approximate");
  const int64_t mode = d.Take("ftz") ? int64_t{kFlushes} : 0;
  const Type type = d.TakeType();
  d.Require(type == Type{Kind::kFloat, 4}, "not of this type");
  d.out.d = d.Out(0, type);
  d.out.a = d.In(1, type);
  d.out.number = mode;
  d.out.run = SingleOf<Exp2>(mode);
  return true;
}

}  // namespace

bool DecodeFloatingPoint(Decoding& d) {
  if (DecodeExp2(d)) return true;
  const std::string_view name = d.name();
  const bool unary = name == "neg" || name == "abs" || name == "rcp" || name == "sqrt";
  const bool ternary = name == "fma" || name == "mad";
  if (!unary && !ternary && name != "add" && name != "sub" && name != "mul" && name != "div" && name != "min" &&
      name != "max" && name != "copysign") {
    return false;
  }
  if (d.PeekType().kind != Kind::kFloat || d.PeekType().elements != 1 || d.PeekType().bytes < 4) return false;
  const Type type = d.TakeType();
  const std::string_view rounding = d.TakeOneOf({"rn", "rz", "rm", "rp"});
  int64_t mode = rounding == "rz" ? kTowardsZero : rounding == "rm" ? kDown : rounding == "rp" ? kUp : kNearest;
  const bool approximate = d.Take("approx") || d.Take("full");
  if (d.Take("ftz")) mode |= kFlushes;
  if (d.Take("sat")) mode |= kSaturates;
  const bool nan = d.Take("NaN");
  d.Require(!nan || name == "min" || name == "max", "no NaN here");
  d.Require(!approximate || name == "div" || name == "rcp", "not approximate");
  d.out.d = d.Out(0, type);
  d.out.a = d.In(1, type);
  if (!unary) d.out.b = d.In(2, type);
  if (ternary) d.out.c = d.In(3, type);
  d.out.number = mode;
  if (name == "neg" || name == "abs") {
    const bool neg = name == "neg";
    d.out.run = type.bytes == 4 ? (neg ? &Sign<Negate, float> : &Sign<Absolute, float>)
                                : (neg ? &Sign<Negate, double> : &Sign<Absolute, double>);
  } else if (name == "rcp" && approximate && type.bytes == 8) {
    d.out.run = &Unary<RoughReciprocal, double>;
  } else if (approximate && type.bytes == 4) {
    d.out.run = name == "div" ? PairOf<RoughDivide>(mode) : SingleOf<RoughInverse>(mode);
  } else if (name == "copysign") {
    d.out.run = type.bytes == 4 ? &Binary<CopySign, float> : &Binary<CopySign, double>;
  } else {
    d.out.run = name == "add"    ? FloatOf<Add, 2>(type, mode)
                : name == "sub"  ? FloatOf<Subtract, 2>(type, mode)
                : name == "mul"  ? FloatOf<Multiply, 2>(type, mode)
                : name == "div"  ? FloatOf<Divide, 2>(type, mode)
                : name == "rcp"  ? FloatOf<Reciprocal, 1>(type, mode)
                : name == "sqrt" ? FloatOf<SquareRoot, 1>(type, mode)
                : name == "min"  ? (nan ? FloatOf<LeastOrNan, 2>(type, mode) : FloatOf<Least, 2>(type, mode))
                : name == "max"  ? (nan ? FloatOf<MostOrNan, 2>(type, mode) : FloatOf<Most, 2>(type, mode))
                                 : MultiplyAddOf(type, mode);
  }
  return true;
}

}  // namespace temper::ptx
