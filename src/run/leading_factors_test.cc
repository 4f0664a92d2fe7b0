#include "run/leading_factors.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/philox.h"

namespace temper::leading_factors_test {
namespace {

// Columns of norm 1, orthogonal to each other: [rows, columns].
std::vector<double> Orthonormal(int64_t rows, int64_t columns, uint64_t seed) {
  std::vector<double> q(static_cast<size_t>(rows * columns));
  for (int64_t j = 0; j < columns; ++j) {
    const auto at = [&](int64_t i, int64_t k) -> double& { return q[static_cast<size_t>(i * columns + k)]; };
    for (int64_t i = 0; i < rows; ++i) {
      at(i, j) = static_cast<double>(NormalAt({.seed = seed}, static_cast<uint64_t>(i * columns + j)));
    }
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t k = 0; k < j; ++k) {
        double dot = 0;
        for (int64_t i = 0; i < rows; ++i) dot += at(i, j) * at(i, k);
        for (int64_t i = 0; i < rows; ++i) at(i, j) -= dot * at(i, k);
      }
      double squares = 0;
      for (int64_t i = 0; i < rows; ++i) squares += at(i, j) * at(i, j);
      for (int64_t i = 0; i < rows; ++i) at(i, j) /= std::sqrt(squares);
    }
  }
  return q;
}

// Matrices of all shapes whose factors are known. The values fall slowly, as those of a trained weight do; one has a
// rank below what is asked for.
TEST(LeadingFactors, AreThoseThatTheMatrixWasMadeOf) {
  struct {
    int64_t m, n, r, rank;
  } const cases[] = {{90, 60, 8, 60}, {60, 90, 8, 60}, {40, 40, 40, 40}, {33, 70, 1, 33}, {50, 30, 6, 3}};
  for (const auto& [m, n, r, rank] : cases) {
    SCOPED_TRACE(testing::Message() << m << " x " << n << ", " << r);
    const std::vector<double> left = Orthonormal(m, rank, 1), right = Orthonormal(n, rank, 2);
    const auto value = [](int64_t k) { return 3 * std::pow(0.97, static_cast<double>(k)); };
    const auto term = [&](int64_t i, int64_t j, int64_t terms) {
      double sum = 0;
      for (int64_t k = 0; k < terms; ++k) {
        sum += value(k) * left[static_cast<size_t>(i * rank + k)] * right[static_cast<size_t>(j * rank + k)];
      }
      return sum;
    };
    std::vector<float> w(static_cast<size_t>(m * n));
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) w[static_cast<size_t>(i * n + j)] = static_cast<float>(term(i, j, rank));
    }
    const LeadingFactors got = LeadingFactorsOf(w, m, n, r, 2);
    ASSERT_EQ(got.values.size(), static_cast<size_t>(r));
    for (int64_t k = 0; k < std::min(r, rank); ++k) {
      EXPECT_NEAR(got.values[static_cast<size_t>(k)], value(k), 1e-5) << "value " << k;
    }
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < r; ++k) {
          sum += got.values[static_cast<size_t>(k)] * static_cast<double>(got.left_MR[static_cast<size_t>(i * r + k)]) *
                 static_cast<double>(got.right_RN[static_cast<size_t>(k * n + j)]);
        }
        // The subspace errs by the residual over the gap between squares of values, a twentieth of the largest.
        ASSERT_NEAR(sum, term(i, j, std::min(r, rank)), 3e-5) << i << ", " << j;
      }
    }
  }
}

}  // namespace
}  // namespace temper::leading_factors_test
