// Loops of rms_norm and layer_norm: a row is read once from memory and again from L1.
#pragma once

namespace temper {
namespace {

// 1 / sqrt(x), correctly rounded operations.
TEMPER_VEC float ReciprocalRoot(double x) {
  return static_cast<float>(1.0 / __builtin_sqrt(x));
}

// What scales lanes from element i on.
template <bool kPlusOne, class T, class Lanes>
TEMPER_VEC Floats ScaleAt(const T* w, int64_t i, Lanes lanes) {
  if constexpr (kPlusOne) return Load(w + i, lanes) + Set(1.0f);
  return Load(w + i, lanes);
}

template <class T, bool kPlusOne = false>
void RmsNorm(const T* x_TD, const T* w, double eps, const NormedRows& of, T* y_TD, float* rstd_T) {
  const int64_t D = of.width;
  for (int64_t t = 0; t < of.rows; ++t) {
    const T* const x = x_TD + t * of.groups * D;
    T* const y = y_TD + t * of.groups * D;
    const float squares = Total(D, [=](int64_t i, auto lanes) {
      const Floats a = Load(x + i, lanes);
      return a * a;
    });
    const float rstd = ReciprocalRoot(static_cast<double>(squares) / static_cast<double>(D) + eps);
    rstd_T[t * of.groups] = rstd;
    Sweep(D, [=](int64_t i, auto lanes) {
      Store(y + i, Load(x + i, lanes) * Set(rstd) * ScaleAt<kPlusOne>(w, i, lanes), lanes);
    });
  }
}

template <class T, bool kPlusOne = false>
void RmsNormBackward(const T* d_y_TD, const T* x_TD, const T* w, const float* rstd_T, const T* acc_TD,
                     const NormedRows& of, T* d_x_TD, float* d_w) {
  const int64_t D = of.width;
  if (d_w != nullptr) Sweep(D, [=](int64_t i, auto lanes) { Store(d_w + i, Zero(), lanes); });
  for (int64_t t = 0; t < of.rows; ++t) {
    const int64_t at = t * of.groups * D;
    const T *const d_y = d_y_TD + at, *const x = x_TD + at;
    const T* const acc = acc_TD == nullptr ? nullptr : acc_TD + at;
    T* const d_x = d_x_TD + at;
    const float rstd = rstd_T[t * of.groups];
    const float dot = Total(D, [=](int64_t i, auto lanes) {
      return Load(d_y + i, lanes) * ScaleAt<kPlusOne>(w, i, lanes) * Load(x + i, lanes);
    });
    const float along_x = -rstd * rstd * rstd * (dot / static_cast<float>(D));
    Sweep(D, [=](int64_t i, auto lanes) {
      const Floats a = Load(x + i, lanes), d = Load(d_y + i, lanes);
      Floats sum = acc == nullptr ? Zero() : Load(acc + i, lanes);
      sum = Fma(a, Set(along_x), sum);
      Store(d_x + i, Fma(d * ScaleAt<kPlusOne>(w, i, lanes), Set(rstd), sum), lanes);
      if (d_w != nullptr) Store(d_w + i, Fma(d, a * Set(rstd), Load(d_w + i, lanes)), lanes);
    });
  }
}

template <class T, bool kPlusOne = false>
void LayerNorm(const T* x_TD, const T* w, const T* b, double eps, const NormedRows& of, T* y_TD, float* mean_T,
               float* rstd_T) {
  const int64_t D = of.width;
  for (int64_t t = 0; t < of.rows; ++t) {
    const T* const x = x_TD + t * of.groups * D;
    T* const y = y_TD + t * of.groups * D;
    const float mean = Total(D, [=](int64_t i, auto lanes) { return Load(x + i, lanes); }) / static_cast<float>(D);
    // About the mean, so that a large mean does not cancel the variance.
    const float squares = Total(D, [=](int64_t i, auto lanes) {
      const Floats a = Keep(Load(x + i, lanes) - Set(mean), lanes);
      return a * a;
    });
    const float rstd = ReciprocalRoot(static_cast<double>(squares) / static_cast<double>(D) + eps);
    mean_T[t * of.groups] = mean;
    rstd_T[t * of.groups] = rstd;
    Sweep(D, [=](int64_t i, auto lanes) {
      const Floats normal = (Load(x + i, lanes) - Set(mean)) * Set(rstd);
      const Floats shift = b == nullptr ? Zero() : Load(b + i, lanes);
      Store(y + i, Fma(normal, ScaleAt<kPlusOne>(w, i, lanes), shift), lanes);
    });
  }
}

template <class T, bool kPlusOne = false>
void LayerNormBackward(const T* d_y_TD, const T* x_TD, const T* w, const float* mean_T, const float* rstd_T,
                       const T* acc_TD, const NormedRows& of, T* d_x_TD, float* d_w, float* d_b) {
  const int64_t D = of.width;
  for (float* const sum : {d_w, d_b}) {
    if (sum != nullptr) Sweep(D, [=](int64_t i, auto lanes) { Store(sum + i, Zero(), lanes); });
  }
  for (int64_t t = 0; t < of.rows; ++t) {
    const int64_t at = t * of.groups * D;
    const T *const d_y = d_y_TD + at, *const x = x_TD + at;
    const T* const acc = acc_TD == nullptr ? nullptr : acc_TD + at;
    T* const d_x = d_x_TD + at;
    const float mean = mean_T[t * of.groups], rstd = rstd_T[t * of.groups];
    // Lanes outside of a Part: d_y is zero there, hence both products.
    const float mean_g =
        Total(D, [=](int64_t i, auto lanes) { return Load(d_y + i, lanes) * ScaleAt<kPlusOne>(w, i, lanes); }) /
        static_cast<float>(D);
    const float mean_gn = Total(D,
                                [=](int64_t i, auto lanes) {
                                  const Floats normal = (Load(x + i, lanes) - Set(mean)) * Set(rstd);
                                  return Load(d_y + i, lanes) * ScaleAt<kPlusOne>(w, i, lanes) * normal;
                                }) /
                          static_cast<float>(D);
    Sweep(D, [=](int64_t i, auto lanes) {
      const Floats d = Load(d_y + i, lanes), normal = (Load(x + i, lanes) - Set(mean)) * Set(rstd);
      const Floats inner = Fma(normal, Set(-mean_gn), d * ScaleAt<kPlusOne>(w, i, lanes) - Set(mean_g));
      Store(d_x + i, Fma(inner, Set(rstd), acc == nullptr ? Zero() : Load(acc + i, lanes)), lanes);
      if (d_w != nullptr) Store(d_w + i, Fma(d, normal, Load(d_w + i, lanes)), lanes);
      if (d_b != nullptr) Store(d_b + i, Load(d_b + i, lanes) + d, lanes);
    });
  }
}

}  // namespace
}  // namespace temper
