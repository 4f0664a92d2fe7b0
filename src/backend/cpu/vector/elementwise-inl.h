// Loops of add, scale, scale_columns, cast, relu, its square, clamp and of the embedding's gradient. Those that only
// move numbers store them exactly.
#pragma once

namespace temper {
namespace {

template <class T>
void Add(const T* a, const T* b, T* y, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) { Store(y + i, Load(a + i, lanes) + Load(b + i, lanes), lanes); });
}

template <class T>
void Scale(const T* x, float factor, T* y, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) { Store(y + i, Load(x + i, lanes) * Set(factor), lanes); });
}

template <class T>
void Accumulate(const T* x, float* sum, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) { Store(sum + i, Load(sum + i, lanes) + Load(x + i, lanes), lanes); });
}

template <class T>
void ScaleColumns(const T* x, const float* factor, T* y, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) { Store(y + i, Load(x + i, lanes) * Load(factor + i, lanes), lanes); });
}

template <class T>
void ScaleColumnsBackward(const T* d_y, const T* x, const float* factor, const float* reciprocal, T* d_x, float* sum,
                          int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) {
    const Floats d = Load(d_y + i, lanes), a = Load(x + i, lanes) * Load(reciprocal + i, lanes);
    Store(sum + i, Fma(d, a, Load(sum + i, lanes)), lanes);
    Store(d_x + i, d * Load(factor + i, lanes), lanes);
  });
}

template <class From, class To>
void Convert(const From* x, To* y, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) { StoreExact(y + i, Load(x + i, lanes), lanes); });
}

template <class T>
void Relu(const T* x, T* y, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) { StoreExact(y + i, AtLeast(0.0f, Load(x + i, lanes)), lanes); });
}

template <class T>
void ReluBackward(const T* d_y, const T* y, T* d_x, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) {
    StoreExact(d_x + i, ZeroUnlessPositive(Load(y + i, lanes), Load(d_y + i, lanes)), lanes);
  });
}

template <class T>
void ReluSquared(const T* x, T* y, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) {
    const Floats a = AtLeast(0.0f, Load(x + i, lanes));
    Store(y + i, a * a, lanes);
  });
}

template <class T>
void ReluSquaredBackward(const T* d_y, const T* x, T* d_x, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) {
    const Floats a = Load(x + i, lanes);
    Store(d_x + i, ZeroUnlessPositive(a, (a + a) * Load(d_y + i, lanes)), lanes);
  });
}

template <class T>
void Clamp(const T* x, float limit, T* y, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) { Store(y + i, AtLeast(-limit, AtMost(limit, Load(x + i, lanes))), lanes); });
}

template <class T>
void ClampBackward(const T* d_y, const T* x, float limit, T* d_x, int64_t n) {
  Sweep(n, [=](int64_t i, auto lanes) {
    StoreExact(d_x + i, WhereNegative(Set(limit) - Abs(Load(x + i, lanes)), Zero(), Load(d_y + i, lanes)), lanes);
  });
}

}  // namespace
}  // namespace temper
