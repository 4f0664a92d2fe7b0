// exp and functions made from it: the logistic function, tanh, the Gaussian tail. u is f32's unit roundoff, 2^-24.
#pragma once

namespace temper {
namespace {

// What exp is made from: x = n ln 2 + r with |r| <= 0.347, and tail = (exp(r) - 1 - r) / r^2 by the Taylor sum of exp
// up to degree 7. REQUIRES: |x| small enough that n is exact.
struct ExpParts {
  Floats n, r, tail;
};
TEMPER_VEC ExpParts ExpPartsOf(Floats x) {
  const Floats n = RoundToInteger(x * Set(1.44269504f));
  // ln 2 in two parts; n times the upper one (16 bits) is exact.
  Floats r = Fma(n, Set(-0x1.62e4p-1f), x);
  r = Fma(n, Set(-0x1.7f7d1cp-20f), r);
  Floats p = Set(1.0f / 5040);
  p = Fma(p, r, Set(1.0f / 720));
  p = Fma(p, r, Set(1.0f / 120));
  p = Fma(p, r, Set(1.0f / 24));
  p = Fma(p, r, Set(1.0f / 6));
  p = Fma(p, r, Set(0.5f));
  return {n, r, p};
}

// exp(x) within 4u, relative, where the result is normal; 0 below -87.7, inf above 88.73; NaN stays NaN.
// r carries 2 roundings of its own size (0.7u of the result), the Taylor sum is short by r^8/8!/e^r < 8e-9 = 0.13u, and
// Horner's rule rounds by 1u + 0.35 * (1u + 0.35 * ...) < 1.6u.
TEMPER_VEC Floats Exp(Floats x) {
  const ExpParts e = ExpPartsOf(AtLeast(-104.0f, AtMost(89.0f, x)));
  return TimesPowerOfTwo(Fma(Fma(e.tail, e.r, Set(1.0f)), e.r, Set(1.0f)), e.n);
}

constexpr float kLog2E = 1.44269504f;

// 2^x within 3e-6, relative, for probabilities that are rounded to bf16 later; 0 below -126.5. REQUIRES: x
// <= 1.
TEMPER_VEC Floats RoughExp2(Floats x) {
  x = AtLeast(-150.0f, x);
  const Floats n = RoundToInteger(x), r = x - n;
  // Taylor: what is left out is (r ln 2)^6 / 720 <= 2.4e-6.
  Floats p = Set(1.33335581e-3f);
  p = Fma(p, r, Set(9.61812911e-3f));
  p = Fma(p, r, Set(5.55041087e-2f));
  p = Fma(p, r, Set(2.40226507e-1f));
  p = Fma(p, r, Set(6.93147181e-1f));
  p = Fma(p, r, Set(1.0f));
  return TimesPowerOfTwo(p, n);
}

// s = 1 / (1 + exp(-x)) within 6u and 1 - s within 8u, relative: with e = exp(-x), 1 - s = e * s has no cancellation.
// Where e is infinite, s is 0 and e * s would be NaN: 1 - s is 1.
struct Logistic {
  Floats s, complement;
};
TEMPER_VEC Logistic LogisticOf(Floats x) {
  const Floats e = Exp(Zero() - x);
  const Floats s = Set(1.0f) / (Set(1.0f) + e);
  return {s, AtMostOne(e * s)};
}

// tanh(x) = e / (e + 2) with e = exp(2x) - 1, within 6u, relative, at any x; NaN stays NaN. Beyond 10 it is 1 in f32. e
// is taken without cancellation: with 2x = n ln 2 + r, e = 2^n (exp(r) - 1) + (2^n - 1), of which the second term is
// exact, the first within 1.5u of r, and neither is more than 3 times e. The quotient halves what e lost where |e| > 2.
TEMPER_VEC Floats Tanh(Floats x) {
  const ExpParts twice = ExpPartsOf(AtLeast(-20.0f, AtMost(20.0f, x + x)));
  const Floats small = Fma(twice.tail * twice.r, twice.r, twice.r), power = TimesPowerOfTwo(Set(1.0f), twice.n);
  const Floats e = Fma(small, power, power - Set(1.0f));
  return e / (e + Set(2.0f));
}

// The standard normal distribution at x: density phi, and Phi = P(X < x) with a small relative error in both tails.
// For a = |x|: Phi(-a) = exp(-a^2/2) * R(a), R(a) = t * polynomial(t) with t = 1 / (1 + a/4), fitted for the least
// relative error on [0, 15] by tools/fit_gaussian_tail.py: 0.3u; its terms are nearly all positive (sum of magnitudes
// 1.3 times the value), so evaluation adds about 1.3 * 12u. Where a > 15, exp(-a^2/2) is 0 in f32.
struct Normal {
  Floats density, cumulative;
};
TEMPER_VEC Normal NormalOf(Floats x) {
  const Floats a = AtMost(15.0f, Abs(x));
  const Floats square = a * a;
  const Floats rest = Fma(a, a, Zero() - square);  // what rounding a^2 lost, which exp would magnify by a^2
  const Floats e = Exp(square * Set(-0.5f));
  const Floats gauss = Fma(e, rest * Set(-0.5f), e);
  const Floats t = Set(1.0f) / Fma(a, Set(0.25f), Set(1.0f));
  constexpr float kPolynomial[] = {0.0171772707f, -0.066119656f, 0.0596941151f, 0.0173834823f, 0.0222140569f,
                                   0.081366986f,  0.0739028379f, 0.0950895697f, 0.0995463505f, 0.0997449905f};
  Floats p = Set(kPolynomial[0]);
  for (int k = 1; k < 10; ++k) p = Fma(p, t, Set(kPolynomial[k]));
  const Floats tail = gauss * (t * p);
  return {gauss * Set(0.398942280f), WhereNegative(x, tail, Set(1.0f) - tail)};
}

}  // namespace
}  // namespace temper
