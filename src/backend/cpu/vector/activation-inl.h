// Loops of gelu and swiglu. One pass over memory; about 20 operations per element beside it.
#pragma once

namespace temper {
namespace {

template <class T>
void GeluErf(const T* x, T* y, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) {
    const Floats a = Load(x + i, lanes);
    Store(y + i, a * NormalOf(a).cumulative, lanes);
  });
}

template <class T>
void GeluErfBackward(const T* d_y, const T* x, T* d_x, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) {
    const Floats a = Load(x + i, lanes);
    const Normal normal = NormalOf(a);
    Store(d_x + i, Load(d_y + i, lanes) * Fma(a, normal.density, normal.cumulative), lanes);
  });
}

// (1 + tanh z) / 2 is the logistic function at 2z, 2z = kTwiceRoot * (x + kCubic x^3), without cancellation at any z.
constexpr float kTwiceRoot = 1.59576912f;  // 2 sqrt(2/pi)
constexpr float kCubic = 0.044715f;

template <class T>
void GeluTanh(const T* x, T* y, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) {
    const Floats a = Load(x + i, lanes);
    const Floats twice_z = Set(kTwiceRoot) * Fma(a * a * a, Set(kCubic), a);
    Store(y + i, a * LogisticOf(twice_z).s, lanes);
  });
}

// d/dx x s(2z) = s + x s (1 - s) (2z)'.
template <class T>
void GeluTanhBackward(const T* d_y, const T* x, T* d_x, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) {
    // Beyond 30 the slope is 0 or 1, and the powers of x might overflow.
    const Floats a = AtLeast(-30.0f, AtMost(30.0f, Load(x + i, lanes))), square = a * a;
    const Floats twice_z = Set(kTwiceRoot) * Fma(square * a, Set(kCubic), a);
    const Floats inner = Set(kTwiceRoot) * Fma(square, Set(3 * kCubic), Set(1.0f));
    const Logistic l = LogisticOf(twice_z);
    const Floats slope = Fma(a * l.complement * inner, l.s, l.s);
    Store(d_x + i, Load(d_y + i, lanes) * slope, lanes);
  });
}

template <class T>
void Swiglu(const T* gate, const T* up, T* h, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) {
    const Floats a = Load(gate + i, lanes);
    Store(h + i, a * LogisticOf(a).s * Load(up + i, lanes), lanes);
  });
}

// silu'(x) = s (1 + x (1 - s)).
template <class T>
void SwigluBackward(const T* d_h, const T* gate, const T* up, T* d_gate, T* d_up, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) {
    const Floats d = Load(d_h + i, lanes), a = Load(gate + i, lanes), u = Load(up + i, lanes);
    const Logistic l = LogisticOf(a);
    const Floats d_s = d * l.s;
    Store(d_gate + i, d_s * u * Fma(a, l.complement, Set(1.0f)), lanes);
    Store(d_up + i, d_s * a, lanes);
  });
}

}  // namespace
}  // namespace temper
