// rms_norm, layer_norm and their backwards.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/reference.h"
#include "graph/named_ops.h"
#include "op_case.h"

namespace temper::norms_test {
namespace {

// (T, D): single elements, odd tails, more than one block of 64 rows, a large row, many rows.
constexpr int64_t kSizes[][2] = {{1, 1}, {1, 33}, {5, 7}, {64, 16}, {65, 100}, {130, 48}, {2, 1500}, {300, 257}};
// Larger cases run with no flag and with all of them: simulated GPUs take seconds for each.
constexpr int64_t kFewRows = 8;

// Roundoffs that an f32 sum over D elements may lose: D / (4 lanes) terms in each of four AVX2 vectors, then 5 levels.
double Row(int64_t D) {
  return static_cast<double>(D) / 32 + 6;
}
// And one over T tokens in blocks of 64 rows, with three roundings in each term.
double Column(int64_t T) {
  return std::min<double>(64, T) + static_cast<double>(T) / 64 + 5;
}

TEST(RmsNorm, AgreesWithItsTwin) {
  for (DType dtype : kCompute) {
    for (auto [T, D] : kSizes) {
      for (const int64_t plus_one : {0, 1}) {
        const Tensor x = Tensor::Random({dtype, {T, D}}, 1, 3), w = Tensor::Random({dtype, {D}}, 2);
        const OpCase norm{Op::kRmsNorm, {x, w}, {{"eps", 1e-5}, {"plus_one", plus_one}}};
        const auto want = RunOn(ReferenceKernels(), norm, 1);
        // The sum of squares loses Row(D) roundoffs of itself, its root half of them; then rounding, two products, and
        // 1 + w.
        ExpectConforms(norm, [&, D = D](int k, int64_t i) { return (Row(D) / 2 + 6) * kU * std::fabs(want[k][i]); });
      }
    }
  }
}

TEST(RmsNorm, OfOnePlusWIsThatOfTheSum) {
  const Tensor x = Tensor::Random({DType::kF64, {5, 7}}, 1), w = Tensor::Random({DType::kF64, {7}}, 2);
  Tensor sum = w;
  for (int64_t i = 0; i < 7; ++i) sum.Set(i, 1 + w[i]);
  const Attributes plus_one{{"eps", 1e-5}, {"plus_one", int64_t{1}}};
  const auto got = RunOn(ReferenceKernels(), {Op::kRmsNorm, {x, w}, plus_one}, 1);
  const auto want = RunOn(ReferenceKernels(), {Op::kRmsNorm, {x, sum}, {{"eps", 1e-5}}}, 1);
  for (size_t k = 0; k < 2; ++k) EXPECT_TRUE(got[k].SameBytes(want[k])) << k;
}

// A row of G groups is like G rows, with the statistics in a matrix.
TEST(RmsNorm, OfGroupsAgreesWithItsTwin) {
  for (DType dtype : kCompute) {
    for (auto [T, D] : kSizes) {
      for (const int64_t G : {1, 3}) {
        const Tensor x = Tensor::Random({dtype, {T, G * D}}, 1, 3), w = Tensor::Random({dtype, {D}}, 2);
        const OpCase norm{Op::kRmsNorm, {x, w}, {{"eps", 1e-5}, {"grouped", int64_t{1}}}};
        const auto want = RunOn(ReferenceKernels(), norm, 1);
        ExpectConforms(norm, [&, D = D](int k, int64_t i) { return (Row(D) / 2 + 5) * kU * std::fabs(want[k][i]); });
      }
    }
  }
}

// Groups with scales of their own: rows of each group are normed as rows alone, beside the other groups.
TEST(RmsNorm, OfGroupsWithScalesOfTheirOwnAgreesWithItsTwin) {
  for (DType dtype : kCompute) {
    for (auto [T, D] : kSizes) {
      const int64_t G = 3;
      const Tensor x = Tensor::Random({dtype, {T, G * D}}, 1, 3), w = Tensor::Random({dtype, {G * D}}, 2);
      const Attributes groups{{"eps", 1e-5}, {"grouped", int64_t{1}}, {"groups", G}};
      const OpCase norm{Op::kRmsNorm, {x, w}, groups};
      const auto want = RunOn(ReferenceKernels(), norm, 1);
      ExpectConforms(norm, [&, D = D](int k, int64_t i) { return (Row(D) / 2 + 5) * kU * std::fabs(want[k][i]); });
    }
  }
}

struct NormCase {
  Tensor d_y, x, w, acc, acc_w, acc_b;
  NormCase(DType dtype, int64_t T, int64_t D, double mean)
      : d_y(Tensor::Random({dtype, {T, D}}, 3)),
        x(Tensor::Random({dtype, {T, D}}, 4, 2)),
        w(Tensor::Random({dtype, {D}}, 5)),
        acc(Tensor::Random({dtype, {T, D}}, 6)),
        acc_w(Tensor::Random({DType::kF32, {D}}, 7, 4)),
        acc_b(Tensor::Random({DType::kF32, {D}}, 8, 4)) {
    for (int64_t i = 0; i < T * D; ++i) x.Set(i, x[i] + mean);
  }
};

TEST(RmsNorm, BackwardAgreesWithItsTwin) {
  for (DType dtype : kCompute) {
    for (auto [T, D] : kSizes) {
      const NormCase c(dtype, T, D, 0);
      const Tensor rstd = RunOn(ReferenceKernels(), {Op::kRmsNorm, {c.x, c.w}, {{"eps", 1e-5}}}, 1)[1];
      for (int flags = 0; flags < 16; ++flags) {
        const int64_t acc = flags & 1, grad_w = flags >> 1 & 1, acc_w = flags >> 2 & 1, plus_one = flags >> 3;
        if ((acc_w && !grad_w) || (T > kFewRows && flags != 0 && flags != 15)) continue;
        OpCase backward{Op::kRmsNormBackward,
                        {c.d_y, c.x, c.w, rstd},
                        {{"acc", acc}, {"grad_w", grad_w}, {"acc_w", acc_w}, {"plus_one", plus_one}}};
        if (acc) backward.inputs.push_back(c.acc);
        if (acc_w) backward.inputs.push_back(c.acc_w);
        ExpectConforms(backward, [&, T = T, D = D](int k, int64_t i) {
          const auto scale = [&](int64_t d) { return std::fabs(static_cast<double>(plus_one) + c.w[d % D]); };
          double sum = 0;
          if (k == 0) {
            const int64_t t = i / D;
            for (int64_t d = t * D; d < (t + 1) * D; ++d) sum += std::fabs(c.d_y[d] * c.x[d]) * scale(d);
            const double r = rstd[t];
            const double dot_part = r * r * r * std::fabs(c.x[i]) * sum / static_cast<double>(D);
            return kU * ((Row(D) + 10) * dot_part + (4 + plus_one) * r * std::fabs(c.d_y[i]) * scale(i) +
                         2 * acc * std::fabs(c.acc[i]));
          }
          for (int64_t t = 0; t < T; ++t) sum += std::fabs(c.d_y[t * D + i] * c.x[t * D + i] * rstd[t]);
          return kU * Column(T) * (sum + acc_w * std::fabs(c.acc_w[i]));
        });
      }
    }
  }
}

TEST(RmsNorm, BackwardOfGroupsWithScalesOfTheirOwnAgreesWithItsTwin) {
  for (DType dtype : kCompute) {
    for (auto [T, D] : kSizes) {
      const int64_t G = 3, W = G * D;
      const NormCase c(dtype, T, W, 0);
      const Attributes groups{{"eps", 1e-5}, {"grouped", int64_t{1}}, {"groups", G}};
      const Tensor rstd = RunOn(ReferenceKernels(), {Op::kRmsNorm, {c.x, c.w}, groups}, 1)[1];
      const Attributes all{
          {"acc", int64_t{1}}, {"grad_w", int64_t{1}}, {"acc_w", int64_t{1}}, {"grouped", int64_t{1}}, {"groups", G}};
      ExpectConforms({Op::kRmsNormBackward, {c.d_y, c.x, c.w, rstd, c.acc, c.acc_w}, all}, [&, T = T, D = D, W = W](
                                                                                               int k, int64_t i) {
        double sum = 0;
        if (k == 0) {
          const int64_t g = i / D;
          for (int64_t d = g * D; d < (g + 1) * D; ++d) sum += std::fabs(c.d_y[d] * c.w[d % W] * c.x[d]);
          const double r = rstd[g];
          const double dot_part = r * r * r * std::fabs(c.x[i]) * sum / static_cast<double>(D);
          return kU * ((Row(D) + 10) * dot_part + 4 * r * std::fabs(c.d_y[i] * c.w[i % W]) + 2 * std::fabs(c.acc[i]));
        }
        for (int64_t t = 0; t < T; ++t) {
          sum += std::fabs(c.d_y[t * W + i] * c.x[t * W + i] * rstd[(t * W + i) / D]);
        }
        return kU * Column(T) * (sum + std::fabs(c.acc_w[i]));
      });
    }
  }
}

TEST(RmsNorm, BackwardOfGroupsAgreesWithItsTwin) {
  for (DType dtype : kCompute) {
    for (auto [T, D] : kSizes) {
      const int64_t G = 3;
      const NormCase c(dtype, T, G * D, 0);
      const Tensor w = Tensor::Random({dtype, {D}}, 5), acc_w = Tensor::Random({DType::kF32, {D}}, 7, 4);
      const OpCase norm{Op::kRmsNorm, {c.x, w}, {{"eps", 1e-5}, {"grouped", int64_t{1}}}};
      const Tensor rstd = RunOn(ReferenceKernels(), norm, 1)[1];
      const Attributes all{{"acc", int64_t{1}},
                           {"grad_w", int64_t{1}},
                           {"acc_w", int64_t{1}},
                           {"grouped", int64_t{1}},
                           {"plus_one", int64_t{1}}};
      ExpectConforms({Op::kRmsNormBackward, {c.d_y, c.x, w, rstd, c.acc, acc_w}, all},
                     [&, T = T, D = D](int k, int64_t i) {
                       double sum = 0;
                       if (k == 0) {
                         const int64_t g = i / D;
                         for (int64_t d = g * D; d < (g + 1) * D; ++d)
                           sum += std::fabs(c.d_y[d] * (1 + w[d % D]) * c.x[d]);
                         const double r = rstd[g];
                         const double dot_part = r * r * r * std::fabs(c.x[i]) * sum / static_cast<double>(D);
                         return kU * ((Row(D) + 10) * dot_part + 5 * r * std::fabs(c.d_y[i] * (1 + w[i % D])) +
                                      2 * std::fabs(c.acc[i]));
                       }
                       for (int64_t g = 0; g < T * G; ++g)
                         sum += std::fabs(c.d_y[g * D + i] * c.x[g * D + i] * rstd[g]);
                       return kU * Column(T * G) * (sum + std::fabs(acc_w[i]));
                     });
    }
  }
}

TEST(LayerNorm, AgreesWithItsTwinAroundZeroAndFarFromIt) {
  for (DType dtype : kCompute) {
    for (double mean : {0.0, 100.0}) {
      for (auto [T, D] : kSizes) {
        const NormCase c(dtype, T, D, mean);
        const Tensor b = Tensor::Random({dtype, {D}}, 9);
        const int64_t plus_one = T % 2;
        const OpCase norm{Op::kLayerNorm, {c.x, c.w, b}, {{"eps", 1e-5}, {"plus_one", plus_one}}};
        const auto scale = [&, D = D](int64_t i) { return std::fabs(static_cast<double>(plus_one) + c.w[i % D]); };
        const auto want = RunOn(ReferenceKernels(), norm, 1);
        ExpectConforms(norm, [&, D = D](int k, int64_t i) {
          const int64_t t = k == 0 ? i / D : i;
          double sum = 0, variance = 0;
          for (int64_t d = t * D; d < (t + 1) * D; ++d) sum += std::fabs(c.x[d]);
          const double m = want[1][t], r = want[2][t];
          for (int64_t d = t * D; d < (t + 1) * D; ++d) variance += (c.x[d] - m) * (c.x[d] - m);
          const double mean_off = kU * (Row(D) + 1) * sum / static_cast<double>(D);
          if (k == 1) return mean_off;
          // The mean's error e adds e^2 to the variance and each difference x - mean is rounded: 2u and 2e of |x -
          // mean|.
          const double spread = std::sqrt(variance / static_cast<double>(D));
          const double relative = (Row(D) + 4) / 2 * kU + r * r * mean_off * (mean_off + 2 * kU * spread);
          if (k == 2) return relative * r;
          // 1 + w is rounded once more.
          return (relative + 5 * kU) * std::fabs((c.x[i] - m) * r) * scale(i) +
                 r * scale(i) * (mean_off + kU * std::fabs(m)) + kU * std::fabs(want[0][i]);
        });
      }
    }
  }
}

// Groups, 3 of D elements, that share their parameters or have their own, with a shift or without: rows of the group
// are normed as rows alone.
struct GroupCase {
  Attributes with;  // of both ops
  Shape parameter;
  GroupCase(bool own, bool shifted, int64_t D)
      : with({{"grouped", int64_t{1}}}), parameter(own ? Shape{3, D} : Shape{D}) {
    if (!shifted) with.Set("unshifted", int64_t{1});
  }
};
constexpr std::pair<bool, bool> kGroupCases[] = {{false, true}, {false, false}, {true, true}, {true, false}};
// Of many rows those that models have, and not the most of all: simulated GPUs take seconds for each.
bool IsTried(int64_t T, int64_t D, bool own, bool shifted) {
  return T <= kFewRows || (T * D < 10000 && own != shifted);
}

TEST(LayerNorm, OfGroupsAgreesWithItsTwin) {
  for (DType dtype : kCompute) {
    for (auto [T, D] : kSizes) {
      for (const auto& [own, shifted] : kGroupCases) {
        if (!IsTried(T, D, own, shifted)) continue;
        const GroupCase g(own, shifted, D);
        const Tensor x = Tensor::Random({dtype, {T, 3 * D}}, 4, 2), w = Tensor::Random({dtype, g.parameter}, 5);
        OpCase norm{Op::kLayerNorm, {x, w}, g.with};
        norm.attributes.Set("eps", 1e-5);
        if (shifted) norm.inputs.push_back(Tensor::Random({dtype, g.parameter}, 9));
        const auto want = RunOn(ReferenceKernels(), norm, 1);
        const auto row = [&, D = D](int64_t i) { return i / D; };
        ExpectConforms(norm, [&, D = D](int k, int64_t i) {
          const int64_t t = k == 0 ? row(i) : i;
          double sum = 0, variance = 0;
          const double m = want[1][t], r = want[2][t];
          for (int64_t d = t * D; d < (t + 1) * D; ++d) {
            sum += std::fabs(x[d]);
            variance += (x[d] - m) * (x[d] - m);
          }
          const double mean_off = kU * (Row(D) + 1) * sum / static_cast<double>(D);
          if (k == 1) return mean_off;
          const double spread = std::sqrt(variance / static_cast<double>(D));
          const double relative = (Row(D) + 4) / 2 * kU + r * r * mean_off * (mean_off + 2 * kU * spread);
          if (k == 2) return relative * r;
          const double scale = std::fabs(w[i % g.parameter.elements()]);
          return (relative + 5 * kU) * std::fabs((x[i] - m) * r) * scale + r * scale * (mean_off + kU * std::fabs(m)) +
                 kU * std::fabs(want[0][i]);
        });
      }
    }
  }
}

TEST(LayerNorm, BackwardOfGroupsAgreesWithItsTwin) {
  for (DType dtype : kCompute) {
    for (auto [T, D] : kSizes) {
      for (const auto& [own, shifted] : kGroupCases) {
        if (!IsTried(T, D, own, shifted)) continue;
        const GroupCase g(own, shifted, D);
        const NormCase c(dtype, T, 3 * D, 0.5);
        const Tensor w = Tensor::Random({dtype, g.parameter}, 5), b = Tensor::Random({dtype, g.parameter}, 9);
        OpCase norm{Op::kLayerNorm, {c.x, w}, g.with};
        norm.attributes.Set("eps", 1e-5);
        if (shifted) norm.inputs.push_back(b);
        const auto forward = RunOn(ReferenceKernels(), norm, 1);
        const Tensor &mean = forward[1], &rstd = forward[2];
        const Tensor acc_w = Tensor::Random({DType::kF32, g.parameter}, 7, 4);
        const Tensor acc_b = Tensor::Random({DType::kF32, g.parameter}, 8, 4);
        OpCase backward{Op::kLayerNormBackward, {c.d_y, c.x, w, mean, rstd, c.acc, acc_w}, g.with};
        if (shifted) backward.inputs.push_back(acc_b);
        for (const char* flag : {"acc", "grad_w", "acc_w"}) backward.attributes.Set(flag, int64_t{1});
        const int64_t W = g.parameter.elements();
        ExpectConforms(backward, [&, T = T, D = D](int k, int64_t i) {
          const auto normal = [&](int64_t j) { return std::fabs(c.x[j] - mean[j / D]) * rstd[j / D]; };
          const auto scale = [&](int64_t j) { return std::fabs(w[j % W]); };
          if (k == 0) {
            double sum_g = 0, sum_gn = 0;
            for (int64_t d = i / D * D; d < (i / D + 1) * D; ++d) {
              sum_g += std::fabs(c.d_y[d]) * scale(d);
              sum_gn += std::fabs(c.d_y[d]) * scale(d) * normal(d);
            }
            const double means = (sum_g + sum_gn * normal(i)) / static_cast<double>(D);
            return kU * ((Row(D) + 9) * rstd[i / D] * means + 6 * rstd[i / D] * std::fabs(c.d_y[i]) * scale(i) +
                         2 * std::fabs(c.acc[i]));
          }
          double sum = 0;
          for (int64_t j = i; j < T * 3 * D; j += W) sum += std::fabs(c.d_y[j]) * (k == 1 ? normal(j) : 1);
          return kU * Column(T * 3 * D / W) * (sum + std::fabs(k == 1 ? acc_w[i] : acc_b[i]));
        });
      }
    }
  }
}

TEST(LayerNorm, BackwardAgreesWithItsTwin) {
  for (DType dtype : kCompute) {
    for (auto [T, D] : kSizes) {
      const NormCase c(dtype, T, D, 0.5);
      const auto forward =
          RunOn(ReferenceKernels(), {Op::kLayerNorm, {c.x, c.w, Tensor::Random({dtype, {D}}, 9)}, {{"eps", 1e-5}}}, 1);
      const Tensor &mean = forward[1], &rstd = forward[2];
      for (int flags = 0; flags < 8; ++flags) {
        const int64_t acc = flags & 1, grad_w = flags >> 1 & 1, acc_w = flags >> 2 & 1;
        if ((acc_w && !grad_w) || (T > kFewRows && flags != 0 && flags != 7)) continue;
        OpCase backward{Op::kLayerNormBackward,
                        {c.d_y, c.x, c.w, mean, rstd},
                        {{"acc", acc}, {"grad_w", grad_w}, {"acc_w", acc_w}, {"plus_one", acc}}};
        const auto scale = [&, D = D](int64_t i) { return std::fabs(static_cast<double>(acc) + c.w[i % D]); };
        if (acc) backward.inputs.push_back(c.acc);
        if (acc_w) {
          backward.inputs.push_back(c.acc_w);
          backward.inputs.push_back(c.acc_b);
        }
        ExpectConforms(backward, [&, T = T, D = D](int k, int64_t i) {
          // x - mean is rounded: by u of the difference.
          const auto normal = [&](int64_t j) { return std::fabs(c.x[j] - mean[j / D]) * rstd[j / D]; };
          if (k == 0) {
            double g = 0, gn = 0;
            for (int64_t d = i / D * D; d < (i / D + 1) * D; ++d) {
              g += std::fabs(c.d_y[d]) * scale(d);
              gn += std::fabs(c.d_y[d]) * scale(d) * normal(d);
            }
            const double means = (g + gn * normal(i)) / static_cast<double>(D);
            return kU * ((Row(D) + 9) * rstd[i / D] * means + 6 * rstd[i / D] * std::fabs(c.d_y[i]) * scale(i) +
                         2 * acc * std::fabs(c.acc[i]));
          }
          double sum = 0;
          for (int64_t t = 0; t < T; ++t) sum += std::fabs(c.d_y[t * D + i]) * (k == 1 ? normal(t * D + i) : 1);
          return kU * Column(T) * (sum + acc_w * std::fabs(k == 1 ? c.acc_w[i] : c.acc_b[i]));
        });
      }
    }
  }
}

}  // namespace
}  // namespace temper::norms_test
