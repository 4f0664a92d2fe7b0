// Loops of gelu, xielu, glu and softcap. One pass over memory; about 20 operations per element beside it.
#pragma once

namespace temper {
namespace {

// An activation at a point. Each below is a struct with Value(x), and At(x) for backward loops.
struct Curve {
  Floats value, slope;
};

struct GeluErf {
  static TEMPER_INLINE Floats Value(Floats a) { return a * NormalOf(a).cumulative; }
  static TEMPER_INLINE Curve At(Floats a) {
    const Normal normal = NormalOf(a);
    return {a * normal.cumulative, Fma(a, normal.density, normal.cumulative)};
  }
};

// (1 + tanh z) / 2 is the logistic function at 2z, 2z = kTwiceRoot * (x + kCubic x^3), without cancellation at any z.
constexpr float kTwiceRoot = 1.59576912f;  // 2 sqrt(2/pi)
constexpr float kCubic = 0.044715f;

struct GeluTanh {
  static TEMPER_INLINE Floats Value(Floats a) {
    const Floats twice_z = Set(kTwiceRoot) * Fma(a * a * a, Set(kCubic), a);
    return a * LogisticOf(twice_z).s;
  }
  // d/dx x s(2z) = s + x s (1 - s) (2z)'.
  static TEMPER_INLINE Curve At(Floats x) {
    // Beyond 30 the slope is 0 or 1, and the powers of x might overflow.
    const Floats a = AtLeast(-30.0f, AtMost(30.0f, x)), square = a * a;
    const Floats twice_z = Set(kTwiceRoot) * Fma(square * a, Set(kCubic), a);
    const Floats inner = Set(kTwiceRoot) * Fma(square, Set(3 * kCubic), Set(1.0f));
    const Logistic l = LogisticOf(twice_z);
    return {x * l.s, Fma(a * l.complement * inner, l.s, l.s)};
  }
};

struct Sigmoid {
  static TEMPER_INLINE Floats Value(Floats a) { return LogisticOf(a).s; }
  static TEMPER_INLINE Curve At(Floats a) {
    const Logistic l = LogisticOf(a);
    return {l.s, l.s * l.complement};
  }
};

struct Identity {
  static TEMPER_INLINE Floats Value(Floats a) { return a; }
  static TEMPER_INLINE Curve At(Floats a) { return {a, Set(1.0f)}; }
};

template <class Gelu, class T>
void GeluLoop(const T* x, T* y, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) { Store(y + i, Gelu::Value(Load(x + i, lanes)), lanes); });
}

template <class Gelu, class T>
void GeluBackward(const T* d_y, const T* x, T* d_x, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) {
    const Floats slope = Gelu::At(Load(x + i, lanes)).slope;
    Store(d_x + i, Load(d_y + i, lanes) * slope, lanes);
  });
}

template <class Gate, class T>
void Glu(const T* gate, const T* up, T* h, int64_t n) {
  Sweep(n,
        [=](int64_t i, auto lanes) { Store(h + i, Gate::Value(Load(gate + i, lanes)) * Load(up + i, lanes), lanes); });
}

template <class Gate, class T>
void GluBackward(const T* d_h, const T* gate, const T* up, T* d_gate, T* d_up, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) {
    const Floats d = Load(d_h + i, lanes), u = Load(up + i, lanes);
    const Curve curve = Gate::At(Load(gate + i, lanes));
    Store(d_gate + i, d * u * curve.slope, lanes);
    Store(d_up + i, d * curve.value, lanes);
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

// The gate and the up of pairs, in turn in memory, and their clamped values.
struct ClampedPairs {
  Floats gate, up, g, u;
};
TEMPER_VEC ClampedPairs PairsOf(Floats first, Floats last, float limit) {
  const Floats gate = EvenPlaces(first, last), up = OddPlaces(first, last);
  return {gate, up, AtMost(limit, gate), AtLeast(-limit, AtMost(limit, up))};
}
// Zero where the gradient does not pass: x is beyond the limit.
TEMPER_VEC Floats WithinLimit(Floats x, float limit, Floats d) {
  return WhereNegative(Set(limit) - x, Zero(), d);
}

// h = g sigmoid(alpha g) (u + 1), of n pairs. A vector of results reads two of pairs.
template <class T>
void ClampedGlu(const T* pairs, float alpha, float limit, T* h, int64_t n) {
  const auto body = [=](const ClampedPairs& p) { return p.g * LogisticOf(Set(alpha) * p.g).s * (p.u + Set(1.0f)); };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const T* const x = pairs + 2 * i;
    Store(h + i, body(PairsOf(Load(x, Full{}), Load(x + kLanes, Full{}), limit)), Full{});
  }
  if (i == n) return;
  const int64_t rest = 2 * (n - i);  // numbers
  const T* const x = pairs + 2 * i;
  const Floats first = rest < kLanes ? Load(x, First(rest)) : Load(x, Full{});
  const Floats last = rest > kLanes ? Load(x + kLanes, First(rest - kLanes)) : Zero();
  Store(h + i, body(PairsOf(first, last, limit)), First(n - i));
}

template <class T>
void ClampedGluBackward(const T* d_h, const T* pairs, float alpha, float limit, T* d_pairs, int64_t n) {
  struct Gradients {
    Floats gate, up;
  };
  const auto body = [=](Floats d, const ClampedPairs& p) -> Gradients {
    const Floats scaled = Set(alpha) * p.g;
    const Logistic l = LogisticOf(scaled);
    const Floats d_s = d * l.s;
    return {WithinLimit(p.gate, limit, d_s * (p.u + Set(1.0f)) * Fma(scaled, l.complement, Set(1.0f))),
            WithinLimit(p.up, limit, WithinLimit(Zero() - p.up, limit, d_s * p.g))};
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const T* const x = pairs + 2 * i;
    const Gradients g = body(Load(d_h + i, Full{}), PairsOf(Load(x, Full{}), Load(x + kLanes, Full{}), limit));
    Store(d_pairs + 2 * i, FirstInTurn(g.gate, g.up), Full{});
    Store(d_pairs + 2 * i + kLanes, LastInTurn(g.gate, g.up), Full{});
  }
  if (i == n) return;
  const int64_t rest = 2 * (n - i);
  const T* const x = pairs + 2 * i;
  T* const d_x = d_pairs + 2 * i;
  const Floats first = rest < kLanes ? Load(x, First(rest)) : Load(x, Full{});
  const Floats last = rest > kLanes ? Load(x + kLanes, First(rest - kLanes)) : Zero();
  const Gradients g = body(Load(d_h + i, First(n - i)), PairsOf(first, last, limit));
  if (rest < kLanes) return Store(d_x, FirstInTurn(g.gate, g.up), First(rest));
  Store(d_x, FirstInTurn(g.gate, g.up), Full{});
  if (rest > kLanes) Store(d_x + kLanes, LastInTurn(g.gate, g.up), First(rest - kLanes));
}

// exp(x) - 1, without cancellation (as in Tanh), for x of at most 0; 0 is as near as x gets.
TEMPER_VEC Floats ExpMinusOne(Floats x) {
  const ExpParts e = ExpPartsOf(AtLeast(-104.0f, x));
  const Floats small = Fma(e.tail * e.r, e.r, e.r), power = TimesPowerOfTwo(Set(1.0f), e.n);
  return Fma(small, power, power - Set(1.0f));
}

// The branches at x and -x are those of x > 0: -0 is below, as 0 is.
template <class T>
void Xielu(const T* x, const XieluNumbers& of, T* y, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) {
    const Floats a = Load(x + i, lanes), linear = Set(of.beta) * a;
    const Floats above = Fma(Set(of.p) * a, a, linear);
    const Floats below = Fma(Set(of.n), ExpMinusOne(AtMost(of.eps, a)) - a, linear);
    Store(y + i, WhereNegative(Zero() - a, above, below), lanes);
  });
}

template <class T>
XieluSums XieluBackward(const T* d_y, const T* x, const XieluNumbers& of, T* d_x, int64_t n) {
  Floats sum_p = Zero(), sum_n = Zero();
  Sweep(n, [&](int64_t i, auto lanes) {
    // Lanes outside of a Part: d is zero there.
    const Floats a = Load(x + i, lanes), d = Load(d_y + i, lanes), minus = Zero() - a;
    const Floats e = ExpMinusOne(AtMost(of.eps, a));
    const Floats above = Set(2 * of.p) * a, below = Set(of.n) * WhereNegative(a - Set(of.eps), e, Set(-1.0f));
    Store(d_x + i, d * (WhereNegative(minus, above, below) + Set(of.beta)), lanes);
    sum_p = Fma(d, WhereNegative(minus, a * a, Zero()), sum_p);
    sum_n = Fma(d, WhereNegative(minus, Zero(), e - a), sum_n);
  });
  return {Sum(sum_p), Sum(sum_n)};
}

template <class T>
void Softcap(const T* x, float cap, T* y, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) { Store(y + i, Set(cap) * Tanh(Load(x + i, lanes) * Set(1 / cap)), lanes); });
}

}  // namespace
}  // namespace temper
