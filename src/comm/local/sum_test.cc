// Sums against scalar loops, on every instruction set that this machine runs.
#include "comm/local/sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace temper::sum_test {
namespace {

struct Set {
  const char* name;
  const SumKernels* kernels;
};
std::vector<Set> Sets() {
  std::vector<Set> sets = {{"scalar", &kSumKernelsScalar}};
  if (&FastestSumKernels() != &kSumKernelsScalar) sets.push_back({"avx2", &kSumKernelsAvx2});
  if (&FastestSumKernels() == &kSumKernelsAvx512) sets.push_back({"avx512", &kSumKernelsAvx512});
  return sets;
}

// Numbers of all magnitudes, with those that rounding has most trouble with.
float Awkward(std::mt19937& random, int64_t i) {
  switch (i % 61) {
    case 7:
      return std::numeric_limits<float>::infinity();
    case 19:
      return std::numeric_limits<float>::quiet_NaN();
    case 23:
      return std::numeric_limits<float>::denorm_min() * static_cast<float>(random() % 100000);
    case 29:
      return -0.0f;
    case 31:
      return std::numeric_limits<float>::max();
    default:
      return std::ldexp(static_cast<float>(random()) / 4e9f - 0.5f, static_cast<int>(random() % 40) - 20);
  }
}

bool SameBits(float a, float b) {
  // Which of two NaNs comes out of an addition is the machine's to choose.
  return std::isnan(a) ? std::isnan(b) : std::memcmp(&a, &b, sizeof a) == 0;
}

constexpr int64_t kSizes[] = {0, 1, 7, 64, 1023, 1024, 1025, 5000};

TEST(Sum, OfF32AddsInTheOrderOfTerms) {
  for (const Set& set : Sets()) {
    for (const int terms : {1, 2, 3, 5, 8}) {
      for (const int64_t n : kSizes) {
        for (const bool acc : {false, true}) {
          std::mt19937 random(1);
          std::vector<std::vector<float>> data(static_cast<size_t>(terms) + 1, std::vector<float>(n));
          std::vector<const float*> pointers;
          for (auto& v : data) {
            for (int64_t i = 0; i < n; ++i) v[i] = Awkward(random, i + static_cast<int64_t>(random() % 3));
            pointers.push_back(v.data());
          }
          std::vector<float> want(n), got(n, 5.0f);
          for (int64_t i = 0; i < n; ++i) {
            want[i] = data[0][i];
            for (int k = 1; k < terms; ++k) want[i] += data[k][i];
            if (acc) want[i] += data[terms][i];
          }
          set.kernels->f32(pointers.data(), terms, acc ? data[terms].data() : nullptr, got.data(), n);
          for (int64_t i = 0; i < n; ++i) {
            ASSERT_TRUE(SameBits(want[i], got[i]))
                << set.name << " " << terms << " terms, element " << i << " of " << n;
          }
          // Over the last term, as sums in place are.
          float* const over = data[static_cast<size_t>(terms) - 1].data();
          set.kernels->f32(pointers.data(), terms, acc ? data[terms].data() : nullptr, over, n);
          for (int64_t i = 0; i < n; ++i) ASSERT_TRUE(SameBits(want[i], over[i])) << set.name << " in place";
        }
      }
    }
  }
}

TEST(Sum, OfBF16RoundsOnceAtTheEnd) {
  for (const Set& set : Sets()) {
    for (const int terms : {1, 2, 3, 7}) {
      for (const int64_t n : kSizes) {
        std::mt19937 random(2);
        std::vector<std::vector<uint16_t>> data(static_cast<size_t>(terms) + 1, std::vector<uint16_t>(n));
        std::vector<const uint16_t*> pointers;
        for (auto& v : data) {
          for (int64_t i = 0; i < n; ++i) v[i] = ToBF16(Awkward(random, i + static_cast<int64_t>(random() % 3))).bits;
          pointers.push_back(v.data());
        }
        std::vector<uint16_t> got(n), rounded(n);
        std::vector<float> wide(n);
        set.kernels->bf16(pointers.data(), terms, data[terms].data(), got.data(), n);
        set.kernels->bf16_to_f32(pointers.data(), terms, nullptr, wide.data(), n);
        const float* const wide_terms[] = {wide.data()};
        set.kernels->f32_to_bf16(wide_terms, 1, data[terms].data(), rounded.data(), n);
        for (int64_t i = 0; i < n; ++i) {
          float sum = ToFloat(bf16{data[0][i]});
          for (int k = 1; k < terms; ++k) sum += ToFloat(bf16{data[k][i]});
          ASSERT_TRUE(SameBits(sum, wide[i])) << set.name << " element " << i;
          const bf16 want = ToBF16(sum + ToFloat(bf16{data[terms][i]}));
          ASSERT_TRUE(SameBits(ToFloat(want), ToFloat(bf16{got[i]}))) << set.name << " element " << i;
          ASSERT_EQ(got[i], rounded[i]) << set.name << ": a sum that went through f32 is the same";
        }
      }
    }
  }
}

TEST(Sum, OfF64KeepsF64) {
  for (const Set& set : Sets()) {
    const double a[] = {1, 1e16, 0.1}, b[] = {1e-16, 1, 0.2}, acc[] = {0, 0, 0.3};
    const double* const terms[] = {a, b};
    double got[3];
    set.kernels->f64(terms, 2, acc, got, 3);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(got[i], a[i] + b[i] + acc[i]) << set.name;
  }
}

}  // namespace
}  // namespace temper::sum_test
