#include "run/leading_factors.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/cpu/isa.h"
#include "backend/cpu/products/gemm.h"
#include "base/check.h"
#include "base/philox.h"
#include "base/team.h"

namespace temper {
namespace {

constexpr int kDegree = 8;
constexpr int kMostRounds = 100;
constexpr double kEnough = 1e-7;

// out[m, n] = A[m, k] * B[k, n], A as it is or transposed, on any machine.
class Product {
 public:
  Product(int64_t m, int64_t n, int64_t k, bool a_transposed, int threads)
      : m_(m), n_(n), k_(k), a_transposed_(a_transposed), threads_(threads), isa_(DetectIsa()) {
    if (isa_ < Isa::kAvx2) return;
    gemm_ = Gemm({.m = m, .n = n, .k = k, .a_k_contiguous = !a_transposed, .b_k_contiguous = false}, threads, isa_);
    workspace_.resize(static_cast<size_t>(gemm_.workspace().v + 64));
  }
  void Run(const float* a, const float* b, float* out) {
    if (isa_ < Isa::kAvx2) return RunPlain(a, b, out);
    GemmOperands operands{.a = a, .a_stride = a_transposed_ ? m_ : k_, .b = b, .b_stride = n_};
    operands.output.out = out;
    operands.output.out_stride = operands.output.acc_stride = n_;
    operands.output.scale = 1;
    const auto address = reinterpret_cast<uintptr_t>(workspace_.data());
    gemm_.Run(operands, workspace_.data() + (64 - address % 64) % 64);
  }

 private:
  void RunPlain(const float* a, const float* b, float* out) const {
    ParallelFor(threads_, m_, [&](int64_t i) {
      std::vector<double> sum(static_cast<size_t>(n_));
      for (int64_t e = 0; e < k_; ++e) {
        const double x = static_cast<double>(a_transposed_ ? a[e * m_ + i] : a[i * k_ + e]);
        for (int64_t j = 0; j < n_; ++j) sum[static_cast<size_t>(j)] += x * static_cast<double>(b[e * n_ + j]);
      }
      std::copy(sum.begin(), sum.end(), out + i * n_);
    });
  }

  const int64_t m_, n_, k_;
  const bool a_transposed_;
  const int threads_;
  const Isa isa_;
  Gemm gemm_;
  std::vector<std::byte> workspace_;
};

// Eigenvectors (columns) and values of a symmetric matrix [k, k], by Jacobi's rotations, the largest first.
void Eigen(std::vector<double> a, int64_t k, std::vector<double>* vectors, std::vector<double>* values) {
  std::vector<double> v(static_cast<size_t>(k * k));
  for (int64_t i = 0; i < k; ++i) v[static_cast<size_t>(i * k + i)] = 1;
  const auto at = [k](std::vector<double>& x, int64_t i, int64_t j) -> double& {
    return x[static_cast<size_t>(i * k + j)];
  };
  for (int sweep = 0; sweep < 60; ++sweep) {
    double off = 0, on = 0;
    for (int64_t i = 0; i < k; ++i) {
      on += at(a, i, i) * at(a, i, i);
      for (int64_t j = 0; j < i; ++j) off += at(a, i, j) * at(a, i, j);
    }
    if (off <= 1e-32 * on) break;
    for (int64_t p = 0; p < k; ++p) {
      for (int64_t q = p + 1; q < k; ++q) {
        const double apq = at(a, p, q);
        if (apq == 0) continue;
        const double theta = (at(a, q, q) - at(a, p, p)) / (2 * apq);
        const double t = (theta >= 0 ? 1 : -1) / (std::fabs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        for (int64_t i = 0; i < k; ++i) {
          const double x = at(a, i, p), y = at(a, i, q);
          at(a, i, p) = c * x - s * y;
          at(a, i, q) = s * x + c * y;
        }
        for (int64_t i = 0; i < k; ++i) {
          const double x = at(a, p, i), y = at(a, q, i);
          at(a, p, i) = c * x - s * y;
          at(a, q, i) = s * x + c * y;
        }
        for (int64_t i = 0; i < k; ++i) {
          const double x = at(v, i, p), y = at(v, i, q);
          at(v, i, p) = c * x - s * y;
          at(v, i, q) = s * x + c * y;
        }
      }
    }
  }
  std::vector<int64_t> order(static_cast<size_t>(k));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t i, int64_t j) { return at(a, i, i) > at(a, j, j); });
  vectors->assign(static_cast<size_t>(k * k), 0);
  values->clear();
  for (int64_t j = 0; j < k; ++j) {
    const int64_t from = order[static_cast<size_t>(j)];
    values->push_back(at(a, from, from));
    for (int64_t i = 0; i < k; ++i) (*vectors)[static_cast<size_t>(i * k + j)] = at(v, i, from);
  }
}

class Iteration {
 public:
  Iteration(std::span<const float> w, int64_t m, int64_t n, int64_t k, int threads)
      : w_(w),
        m_(m),
        n_(n),
        k_(k),
        threads_(threads),
        forward_(m, k, n, /*a_transposed=*/false, threads),
        backward_(n, k, m, /*a_transposed=*/true, threads),
        y_(static_cast<size_t>(m * k)),
        v_(static_cast<size_t>(n * k)),
        z_(v_.size()),
        before_(v_.size()) {}

  LeadingFactors Run(int64_t r) {
    const RngKey key{.seed = 0, .name_hash = HashName("leading factors")};
    for (size_t i = 0; i < v_.size(); ++i) v_[i] = NormalAt(key, i);
    Apply(v_, &z_);
    std::swap(v_, z_);
    LeadingFactors best{.residual = INFINITY};
    int without_gain = 0;
    for (int round = 0; round < kMostRounds && without_gain < 3; ++round) {
      if (round > 0) Filter();
      Orthonormalise();
      Rotate();
      const double residual = Residual(r);
      without_gain = residual < 0.5 * best.residual ? 0 : without_gain + 1;
      if (residual < best.residual) Keep(r, residual, &best);
      if (residual <= kEnough || values_[0] == 0) break;
    }
    return best;
  }

 private:
  // z = W^T W v; y = W v.
  void Apply(const std::vector<float>& v, std::vector<float>* z) {
    forward_.Run(w_.data(), v.data(), y_.data());
    backward_.Run(w_.data(), y_.data(), z->data());
  }

  // v = T(W^T W) v: a Chebyshev polynomial that grows above the smallest value of the subspace, scaled so that nothing
  // overflows.
  void Filter() {
    const double top = values_[0], half = std::max(values_.back(), top * 1e-12) / 2;
    double sigma = half / (top - half);
    if (!(top > 2.0001 * half)) return Power();
    const double tau = 2 / sigma;
    Apply(v_, &z_);
    Combine(sigma / half, -sigma, 0);
    for (int degree = 2; degree <= kDegree; ++degree) {
      const double next = 1 / (tau - sigma);
      Apply(v_, &z_);
      Combine(2 * next / half, -2 * next, -sigma * next);
      sigma = next;
    }
  }
  void Power() {
    Apply(v_, &z_);
    std::swap(v_, z_);
  }
  // v, before = a z + b v + c before, v.
  void Combine(double a, double b, double c) {
    const auto fa = static_cast<float>(a), fb = static_cast<float>(b), fc = static_cast<float>(c);
    ParallelBlocks(threads_, std::ssize(v_), 1 << 14, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        const float v = v_[i];
        v_[i] = fa * z_[i] + fb * v + (fc == 0 ? 0 : fc * before_[i]);
        before_[i] = v;
      }
    });
  }

  // Columns of v, twice by Gram and Schmidt. A column that the others span becomes another one of noise.
  void Orthonormalise() {
    std::vector<std::vector<double>> columns(static_cast<size_t>(k_), std::vector<double>(static_cast<size_t>(n_)));
    for (size_t j = 0; j < columns.size(); ++j) {
      for (size_t i = 0; i < columns[j].size(); ++i) columns[j][i] = static_cast<double>(v_[i * columns.size() + j]);
    }
    for (size_t j = 0; j < columns.size(); ++j) {
      std::vector<double>& x = columns[j];
      double norm = Normalise(&x);
      for (int pass = 0; pass < 3; ++pass) {
        for (size_t other = 0; other < j; ++other) {
          const std::vector<double>& q = columns[other];
          const double dot = std::inner_product(x.begin(), x.end(), q.begin(), 0.0);
          for (size_t i = 0; i < x.size(); ++i) x[i] -= dot * q[i];
        }
        norm = Normalise(&x);
        if (norm > 1e-9) continue;
        const RngKey key{.seed = 1 + j, .name_hash = HashName("leading factors")};
        for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(NormalAt(key, i));
        pass = -1;
      }
    }
    for (size_t j = 0; j < columns.size(); ++j) {
      for (size_t i = 0; i < columns[j].size(); ++i) v_[i * columns.size() + j] = static_cast<float>(columns[j][i]);
    }
  }
  static double Normalise(std::vector<double>* x) {
    const double norm = std::sqrt(std::inner_product(x->begin(), x->end(), x->begin(), 0.0));
    for (double& e : *x) e = norm > 0 ? e / norm : e;
    return norm;
  }

  // v becomes the vectors of W^T W within the subspace.
  void Rotate() {
    forward_.Run(w_.data(), v_.data(), y_.data());
    const auto k = static_cast<size_t>(k_);
    std::vector<double> gram(k * k), vectors;
    ParallelFor(threads_, k_, [&](int64_t i) {
      for (int64_t row = 0; row < m_; ++row) {
        const float* const y = y_.data() + row * k_;
        const double x = static_cast<double>(y[i]);
        double* const out = gram.data() + i * k_;
        for (int64_t j = 0; j < k_; ++j) out[j] += x * static_cast<double>(y[j]);
      }
    });
    Eigen(std::move(gram), k_, &vectors, &values_);
    for (std::vector<float>* x : {&v_, &y_}) {
      ParallelBlocks(threads_, std::ssize(*x) / k_, 256, [&](int64_t begin, int64_t end) {
        std::vector<double> row(k);
        for (int64_t at = begin; at < end; ++at) {
          float* const of_row = x->data() + at * k_;
          std::fill(row.begin(), row.end(), 0);
          for (size_t i = 0; i < k; ++i) {
            const double e = static_cast<double>(of_row[i]);
            for (size_t j = 0; j < k; ++j) row[j] += e * vectors[i * k + j];
          }
          std::copy(row.begin(), row.end(), of_row);
        }
      });
    }
  }

  // After Rotate: y = W v.
  double Residual(int64_t r) {
    backward_.Run(w_.data(), y_.data(), z_.data());
    double most = 0;
    for (int64_t j = 0; j < r; ++j) {
      double squares = 0;
      for (int64_t i = 0; i < n_; ++i) {
        const auto at = static_cast<size_t>(i * k_ + j);
        const double off = static_cast<double>(z_[at]) - values_[static_cast<size_t>(j)] * static_cast<double>(v_[at]);
        squares += off * off;
      }
      most = std::max(most, std::sqrt(squares));
    }
    return values_[0] > 0 ? most / values_[0] : 0;
  }

  void Keep(int64_t r, double residual, LeadingFactors* best) const {
    best->residual = residual;
    best->values.clear();
    best->left_MR.assign(static_cast<size_t>(m_ * r), 0);
    best->right_RN.assign(static_cast<size_t>(r * n_), 0);
    for (int64_t j = 0; j < r; ++j) {
      double squares = 0;
      for (int64_t i = 0; i < m_; ++i) {
        const double y = static_cast<double>(y_[static_cast<size_t>(i * k_ + j)]);
        squares += y * y;
      }
      const double value = std::sqrt(squares);
      best->values.push_back(value);
      for (int64_t i = 0; i < m_; ++i) {
        const double y = static_cast<double>(y_[static_cast<size_t>(i * k_ + j)]);
        best->left_MR[static_cast<size_t>(i * r + j)] = static_cast<float>(value > 0 ? y / value : 0);
      }
      for (int64_t i = 0; i < n_; ++i) {
        best->right_RN[static_cast<size_t>(j * n_ + i)] = v_[static_cast<size_t>(i * k_ + j)];
      }
    }
  }

  const std::span<const float> w_;
  const int64_t m_, n_, k_;
  const int threads_;
  Product forward_, backward_;
  std::vector<float> y_, v_, z_, before_;  // [m, k], [n, k]...
  std::vector<double> values_;             // of W^T W in the subspace, descending
};

}  // namespace

LeadingFactors LeadingFactorsOf(std::span<const float> w, int64_t m, int64_t n, int64_t r, int threads) {
  TEMPER_CHECK(r >= 1 && r <= std::min(m, n)) << r << " of " << m << " x " << n;
  return Iteration(w, m, n, std::min({2 * r + 16, m, n}), threads).Run(r);
}

}  // namespace temper
