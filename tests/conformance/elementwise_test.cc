// add, scales, cast, slices of rows and columns, select, relu, its square, gelu, swiglu, dropout: ops that move
// elements, or compute each from those in its place.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/reference/reference.h"
#include "base/philox.h"
#include "graph/named_ops.h"
#include "op_case.h"

namespace temper::elementwise_test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// One element, less than a vector, around the vector lengths, several ranges of a thread with a tail.
const Shape kShapes[] = {{1, 1}, {1, 7}, {3, 5}, {1, 16}, {1, 17}, {2, 31}, {8, 64}, {5, 1000}, {3, 4096}, {131, 129}};

double Exact(int, int64_t) {
  return 0;
}

// A sweep over an activation's inputs: fine steps where it bends, then its tails, then special values.
Tensor Arguments(DType dtype, bool infinities = true) {
  std::vector<double> x;
  for (double a = -20; a <= 20; a += 0.01) x.push_back(a);
  for (double a = 20; a < 1e38; a *= 1.7) x.insert(x.end(), {a, -a});
  for (double a = 1; a > 1e-44; a /= 3) x.insert(x.end(), {a, -a});
  x.insert(x.end(), {0.0, -0.0, kNaN, 88.0, -88.0, 88.8, -88.8, 104.0, -104.0});
  if (infinities) x.insert(x.end(), {kInf, -kInf});
  return Tensor::Of({dtype, {1, static_cast<int64_t>(x.size())}}, x);
}

double Sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

// The error of a product with x if a factor underflows in f32 (beyond |x| = 104 it is 0 also for the twin).
double Underflow(double x) {
  return 2 * kTiny * (1 + std::min(std::fabs(x), 104.0));
}

TEST(Add, IsTheRoundedSum) {
  for (DType dtype : kCompute) {
    for (const Shape& shape : kShapes) {
      const OpCase add{Op::kAdd, {Tensor::Random({dtype, shape}, 1), Tensor::Random({dtype, shape}, 2, 100)}, {}};
      // With vcvtneps2bf16 a subnormal result is 0.
      ExpectConforms(add, [&](int, int64_t) { return dtype == DType::kBF16 ? kTiny : 0; });
    }
  }
}

TEST(Add, OfAVectorAddsItToEveryRow) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
    for (const Shape& shape : kShapes) {
      OpCase add{Op::kAdd, {Tensor::Random({dtype, shape}, 1), Tensor::Random({dtype, {shape.columns()}}, 2, 100)}, {}};
      add.may_lack_fast_kernel = dtype == DType::kF64;
      ExpectConforms(add, [&](int, int64_t) { return dtype == DType::kBF16 ? kTiny : 0; });
      const Tensor &a = add.inputs[0], &b = add.inputs[1];
      const Tensor y = RunOn(ReferenceKernels(), add, 1)[0];
      for (int64_t i = 0; i < shape.elements(); ++i) {
        ASSERT_NEAR(y[i], a[i] + b[i % shape.columns()], UnitRoundoff(dtype) * std::fabs(y[i])) << i;
      }
    }
  }
}

TEST(Scale, IsTheRoundedProduct) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
    for (const Shape& shape : kShapes) {
      for (const double factor : {0.22, -3.0, std::sqrt(2304.0)}) {
        OpCase scale{Op::kScale, {Tensor::Random({dtype, shape}, 1)}, {{"factor", factor}}};
        scale.may_lack_fast_kernel = dtype == DType::kF64;
        const Tensor y = RunOn(ReferenceKernels(), scale, 1)[0];
        for (int64_t i = 0; i < shape.elements(); ++i) {
          ASSERT_NEAR(y[i], factor * scale.inputs[0][i], UnitRoundoff(dtype) * std::fabs(y[i])) << i;
        }
        // The factor is rounded to f32, and then the product. With vcvtneps2bf16 a subnormal result is 0.
        ExpectConforms(scale, [&](int, int64_t i) { return 2 * kU * std::fabs(y[i]) + kTiny; });
      }
    }
  }
}

TEST(ScaleBy, IsTheRoundedProductWithAStoredNumber) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
    for (const Shape& shape : kShapes) {
      for (const double factor : {0.21875, -3.0, 0.0}) {
        OpCase scale{Op::kScaleBy, {Tensor::Random({dtype, shape}, 1), Tensor::Of({DType::kF32, {1}}, {factor})}, {}};
        scale.may_lack_fast_kernel = dtype == DType::kF64;
        const Tensor y = RunOn(ReferenceKernels(), scale, 1)[0];
        for (int64_t i = 0; i < shape.elements(); ++i) {
          ASSERT_NEAR(y[i], factor * scale.inputs[0][i], UnitRoundoff(dtype) * std::fabs(y[i])) << i;
        }
        // The product is rounded once. With vcvtneps2bf16 a subnormal result is 0.
        ExpectConforms(scale, [&](int, int64_t i) { return 2 * kU * std::fabs(y[i]) + kTiny; });
      }
    }
  }
}

// Of columns: one, odd tails, more than one block of 64 rows. One of the norms is 0.
TEST(ScaleColumns, AgreesWithItsTwinInBothDirections) {
  for (const DType dtype : kCompute) {
    for (const auto& [T, O] : {std::array<int64_t, 2>{1, 1}, {7, 33}, {65, 100}, {130, 48}}) {
      for (const int64_t less : {0, 1}) {
        const Tensor x = Tensor::Random({dtype, {T, O}}, 1), d_y = Tensor::Random({dtype, {T, O}}, 2);
        const Tensor m = Tensor::Random({DType::kF32, {O}}, 3, 2), acc = Tensor::Random({DType::kF32, {O}}, 4);
        Tensor q({DType::kF32, {O}});
        for (int64_t o = 0; o < O; ++o) q.Set(o, o == 5 ? 0 : 0.1 + 0.05 * static_cast<double>(o));
        const auto factor = [&](int64_t o) { return q[o] > 0 ? std::fabs(m[o]) / std::sqrt(q[o]) : 0; };
        // The factor is rounded by root, quotient and difference, and the product once.
        const auto bound = [&](const Tensor& of, int64_t i) {
          return 5 * kU * (factor(i % O) + 1) * std::fabs(of[i]) + kTiny;
        };
        ExpectConforms({Op::kScaleColumns, {x, m, q}, {{"minus_one", less}}},
                       [&](int, int64_t i) { return bound(x, i); });
        const OpCase backward{
            Op::kScaleColumnsBackward, {d_y, x, m, q, acc}, {{"minus_one", less}, {"acc", int64_t{1}}}};
        // d_m: T terms of three roundings, added up in blocks of 64, and acc.
        ExpectConforms(backward, [&](int k, int64_t i) {
          if (k == 0) return bound(d_y, i);
          double magnitudes = std::fabs(acc[i]);
          for (int64_t t = 0; t < T; ++t)
            magnitudes += std::fabs(d_y[t * O + i] * x[t * O + i]) / std::sqrt(q[i] + 1e-9);
          return (std::min<double>(64, static_cast<double>(T)) + static_cast<double>(T) / 64 + 6) * kU * magnitudes;
        });
      }
    }
  }
}

TEST(Cast, RoundsOnceBetweenAllFloatingTypes) {
  for (DType from : {DType::kF32, DType::kBF16, DType::kF64}) {
    for (DType to : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
      const Attributes attributes{{"dtype", std::string(ToString(to))}};
      const bool rare = from == DType::kF64 || to == DType::kF64 || to == DType::kF16;
      for (const Shape& shape : kShapes) {
        OpCase cast{Op::kCast, {Tensor::Random({from, shape}, 3, 1000)}, attributes};
        cast.may_lack_fast_kernel = rare;
        ExpectConforms(cast, Exact);
        const auto want = RunOn(ReferenceKernels(), cast, 1);
        for (Isa isa : RunnableIsas()) {
          const auto got = RunOn(*MakeCpuKernels({.isa = isa}), cast, 1);
          EXPECT_TRUE(got[0].SameBytes(want[0])) << ToString(from) << " to " << ToString(to) << " on " << ToString(isa);
        }
      }
      OpCase specials{Op::kCast, {Arguments(from)}, attributes};
      specials.may_lack_fast_kernel = rare;
      ExpectConforms(specials, Exact);
    }
  }
}

TEST(Cast, RoundsDoublesToHalvesWithoutAnIntermediateRounding) {
  // Just above the middle of two bf16 numbers, by less than f32 can show: through f32 it would become a tie.
  const Tensor x = Tensor::Of({DType::kF64, {1, 4}}, {1 + 0x1p-8 + 0x1p-40, 1 + 0x3p-8 - 0x1p-40, 1e-320, -1e300});
  const auto y = RunOn(ReferenceKernels(), {Op::kCast, {x}, {{"dtype", std::string("bf16")}}}, 1);
  EXPECT_EQ(y[0][0], 1 + 0x1p-7);
  EXPECT_EQ(y[0][1], 1 + 0x1p-7);
  EXPECT_EQ(y[0][2], 0);
  EXPECT_EQ(y[0][3], -kInf);
}

TEST(SliceRows, CopiesTheBytesOfItsRows) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
    const Tensor x = Tensor::Random({dtype, {300, 67}}, 4);
    for (auto [begin, count] : {std::pair<int64_t, int64_t>{0, 300}, {17, 1}, {250, 50}, {3, 290}, {300, 0}}) {
      ExpectConforms({Op::kSliceRows, {x}, {{"begin", begin}, {"count", count}}}, Exact);
    }
  }
}

TEST(SliceColumns, CopiesTheBytesOfItsColumns) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
    const Tensor x = Tensor::Random({dtype, {300, 67}}, 4);
    for (auto [begin, count] : {std::pair<int64_t, int64_t>{0, 67}, {17, 1}, {50, 17}, {3, 33}, {67, 0}}) {
      ExpectConforms({Op::kSliceColumns, {x}, {{"begin", begin}, {"count", count}}}, Exact);
    }
  }
}

TEST(SliceColumns, BackwardPutsColumnsBackAndAddsThem) {
  for (DType dtype : kCompute) {
    for (auto [begin, count] : {std::pair<int64_t, int64_t>{0, 67}, {17, 1}, {50, 17}, {3, 33}, {67, 0}}) {
      const Tensor d_y = Tensor::Random({dtype, {300, count}}, 4);
      const Attributes place = {{"begin", begin}, {"columns", int64_t{67}}};
      ExpectConforms({Op::kSliceColumnsBackward, {d_y}, place}, Exact);
      Attributes added = place;
      added.Set("acc", int64_t{1});
      // With vcvtneps2bf16 a subnormal result is 0.
      ExpectConforms({Op::kSliceColumnsBackward, {d_y, Tensor::Random({dtype, {300, 67}}, 5)}, added},
                     [&](int, int64_t) { return dtype == DType::kBF16 ? kTiny : 0; });
    }
  }
}

TEST(Unstack, MovesTheBytesOfTheMatricesThatOneHolds) {
  for (const DType dtype : kCompute) {
    for (const auto& [matrices, rows, columns] : {std::array<int64_t, 3>{1, 3, 4}, {5, 16, 67}, {6, 40, 8}}) {
      ExpectConforms({Op::kUnstack, {Tensor::Random({dtype, {matrices * rows, columns}}, 4)}, {{"matrices", matrices}}},
                     Exact);
      ExpectConforms({Op::kUnstack,
                      {Tensor::Random({dtype, {rows, columns * matrices}}, 4)},
                      {{"matrices", matrices}, {"interleaved", int64_t{1}}}},
                     Exact);
    }
  }
}

TEST(Unstack, BackwardPutsGradientsBackAndAddsThem) {
  for (const auto& [matrices, rows, columns] : {std::array<int64_t, 3>{1, 3, 4}, {5, 16, 67}, {6, 40, 8}}) {
    const Tensor d = Tensor::Random({DType::kF32, {matrices, rows, columns}}, 4);
    for (const int64_t interleaved : {0, 1}) {
      const Shape held = interleaved != 0 ? Shape{rows, columns * matrices} : Shape{matrices * rows, columns};
      ExpectConforms({Op::kUnstackBackward, {d}, {{"interleaved", interleaved}}}, Exact);
      ExpectConforms({Op::kUnstackBackward,
                      {d, Tensor::Random({DType::kF32, held}, 5)},
                      {{"acc", int64_t{1}}, {"interleaved", interleaved}}},
                     Exact);
    }
  }
}

TEST(Relu, AgreesWithItsTwinInBothDirections) {
  for (DType dtype : kCompute) {
    ExpectConforms({Op::kRelu, {Arguments(dtype)}, {}}, Exact);
    for (const Shape& shape : kShapes) {
      const Tensor y = RunOn(ReferenceKernels(), {Op::kRelu, {Tensor::Random({dtype, shape}, 5)}, {}}, 1)[0];
      ExpectConforms({Op::kReluBackward, {Tensor::Random({dtype, shape}, 6), y}, {}}, Exact);
    }
  }
}

// One rounding of the product; doubling is exact.
TEST(ReluSquared, AgreesWithItsTwinInBothDirections) {
  for (DType dtype : kCompute) {
    const Tensor x = Arguments(dtype, /*infinities=*/false);
    ExpectConforms({Op::kReluSquared, {x}, {}},
                   [&](int, int64_t i) { return x[i] > 0 ? kU * x[i] * x[i] + Underflow(x[i]) : 0; });
    const Tensor d_y = Tensor::Random(x.type(), 7, 3);
    ExpectConforms({Op::kReluSquaredBackward, {d_y, x}, {}},
                   [&](int, int64_t i) { return x[i] > 0 ? 2 * kU * std::fabs(x[i] * d_y[i]) + Underflow(x[i]) : 0; });
  }
}

TEST(Clamp, AgreesWithItsTwinInBothDirections) {
  for (DType dtype : kCompute) {
    const Attributes limit{{"limit", 1.25}};
    // With vcvtneps2bf16 a subnormal result is 0.
    ExpectConforms({Op::kClamp, {Arguments(dtype)}, limit},
                   [&](int, int64_t) { return dtype == DType::kBF16 ? kTiny : 0; });
    const Tensor x = Arguments(dtype, /*infinities=*/true);
    ExpectConforms({Op::kClampBackward, {Tensor::Random(x.type(), 6, 3), x}, limit}, Exact);
  }
}

// exp(x) - 1 is within 6u of itself (backend/cpu/vector/exp-inl.h, Tanh), what it differs from x by within 8u of x; the
// numbers are rounded to f32, products and sums round once each.
TEST(Xielu, AgreesWithItsTwinInBothDirections) {
  for (DType dtype : kCompute) {
    const Tensor alpha_p = Tensor::Of({dtype, {1}}, {0.625}), alpha_n = Tensor::Of({dtype, {1}}, {-0.75});
    const Tensor beta = Tensor::Of({DType::kF32, {1}}, {0.5}), eps = Tensor::Of({DType::kF32, {1}}, {-1.0 / 1024});
    const double p = std::log1p(std::exp(0.625)), n = 0.5 + std::log1p(std::exp(-0.75));
    std::vector<double> numbers;
    for (double a = -20; a <= 20; a += 0.004) numbers.push_back(a);
    for (double a = 20; a < 1e15; a *= 1.7) numbers.insert(numbers.end(), {a, -a});
    for (double a = 1; a > 1e-30; a /= 3) numbers.insert(numbers.end(), {a, -a});
    numbers.insert(numbers.end(), {0.0, -0.0, -104.0, -88.0});
    ASSERT_GT(numbers.size(), size_t{2 * 4096}) << "the sums of three blocks are to be added up";
    const Tensor x = Tensor::Of({dtype, {1, static_cast<int64_t>(numbers.size())}}, numbers);
    const auto size = [&](double a) { return std::fabs(a) + std::fabs(std::expm1(std::min(a, eps[0]))); };
    ExpectConforms({Op::kXielu, {x, alpha_p, alpha_n, beta, eps}, {}}, [&](int, int64_t i) {
      return kU * ((x[i] > 0 ? 6 * p * x[i] * x[i] : 12 * n * size(x[i])) + 4 * std::fabs(x[i])) + kTiny;
    });
    const Tensor d_y = Tensor::Random(x.type(), 7, 3), acc = Tensor::Random({DType::kF32, {1}}, 8);
    double sum_p = 0, sum_n = 0;  // of magnitudes
    for (int64_t i = 0; i < x.type().shape.elements(); ++i) {
      sum_p += x[i] > 0 ? std::fabs(d_y[i]) * x[i] * x[i] : 0;
      sum_n += x[i] > 0 ? 0 : std::fabs(d_y[i]) * size(x[i]);
    }
    for (const bool grad_w : {true, false}) {
      OpCase backward{Op::kXieluBackward, {d_y, x, alpha_p, alpha_n, beta, eps}, {}};
      for (int i = 0; grad_w && i < 2; ++i) backward.inputs.push_back(acc);
      if (grad_w) backward.attributes = {{"grad_w", int64_t{1}}, {"acc_w", int64_t{1}}};
      ExpectConforms(backward, [&](int k, int64_t i) {
        // Blocks of 4096 elements are summed up in f32, 512 in each lane at most.
        if (k > 0) return kU * (600 * (k == 1 ? sum_p : sum_n) + 4);
        return kU * std::fabs(d_y[i]) * (x[i] > 0 ? 8 * p * x[i] + 4 : 12 * n + 4) + kTiny;
      });
    }
  }
}

// backend/cpu/vector/exp-inl.h: 1 - Phi and Phi within 28u relative, hence 30u with the products.
TEST(Gelu, ByErfAgreesWithItsTwin) {
  for (DType dtype : kCompute) {
    const Tensor x = Arguments(dtype);
    const auto phi = [&](int64_t i) { return std::erfc(-x[i] / std::sqrt(2)) / 2; };
    ExpectConforms({Op::kGelu, {x}, {}},
                   [&](int, int64_t i) { return 30 * kU * std::fabs(x[i] * phi(i)) + Underflow(x[i]); });
    const Tensor d_y = Tensor::Random(x.type(), 7, 3);
    ExpectConforms({Op::kGeluBackward, {d_y, x}, {}}, [&](int, int64_t i) {
      const double density = std::exp(-x[i] * x[i] / 2) / std::sqrt(2 * M_PI);
      return std::fabs(d_y[i]) * (32 * kU * (phi(i) + std::fabs(x[i]) * density) + Underflow(x[i]));
    });
  }
}

// 2z is rounded by 4u of itself, which moves s by |2z| (1 - s) times that; the logistic function adds 8u, the rest 2u.
TEST(Gelu, ByTanhAgreesWithItsTwin) {
  for (DType dtype : kCompute) {
    const Tensor x = Arguments(dtype, /*infinities=*/false);
    const auto twice_z = [&](int64_t i) { return 2 * std::sqrt(2 / M_PI) * (x[i] + 0.044715 * x[i] * x[i] * x[i]); };
    const Attributes tanh{{"tanh", int64_t{1}}};
    ExpectConforms({Op::kGelu, {x}, tanh}, [&](int, int64_t i) {
      const double s = Sigmoid(twice_z(i)), c = Sigmoid(-twice_z(i));
      const double sensitive = s == 0 || c == 0 ? 0 : std::fabs(twice_z(i)) * c;
      return kU * std::fabs(x[i]) * s * (10 + 5 * sensitive) + Underflow(x[i]);
    });
    const Tensor d_y = Tensor::Random(x.type(), 8, 3);
    ExpectConforms({Op::kGeluBackward, {d_y, x}, tanh}, [&](int, int64_t i) {
      const double s = Sigmoid(twice_z(i)), c = Sigmoid(-twice_z(i)), z2 = s == 0 || c == 0 ? 0 : std::fabs(twice_z(i));
      const double inner = 2 * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x[i] * x[i]);
      const double second = s == 0 || c == 0 ? 0 : std::fabs(x[i]) * s * c * inner;
      // The underflowing factor is multiplied by x and by inner, below 104 where it is not 0.
      return std::fabs(d_y[i]) * (kU * (s * (10 + 5 * z2 * c) + second * (24 + 5 * z2)) + 104 * Underflow(x[i]));
    });
  }
}

TEST(Swiglu, AgreesWithItsTwinInBothDirections) {
  for (DType dtype : kCompute) {
    std::vector<Tensor> gates;
    gates.push_back(Arguments(dtype, /*infinities=*/false));
    for (const Shape& shape : kShapes) gates.push_back(Tensor::Random({dtype, shape}, 9, 8));
    for (const Tensor& gate : gates) {
      const Tensor up = Tensor::Random(gate.type(), 10, 2), d_h = Tensor::Random(gate.type(), 11, 2);
      // The logistic function within 8u, two products.
      ExpectConforms({Op::kGlu, {gate, up}, {}}, [&](int, int64_t i) {
        return 10 * kU * std::fabs(gate[i] * Sigmoid(gate[i]) * up[i]) + 2 * Underflow(gate[i]);  // |up| <= 2
      });
      // s and its complement 8u, four more operations.
      ExpectConforms({Op::kGluBackward, {d_h, gate, up}, {}}, [&](int k, int64_t i) {
        const double s = Sigmoid(gate[i]), c = Sigmoid(-gate[i]), d = std::fabs(d_h[i]);
        const double tiny = 4 * Underflow(gate[i]);  // |d| |up| <= 4
        if (k == 1) return 10 * kU * d * s * std::fabs(gate[i]) + tiny;
        const double along = s == 0 || c == 0 ? 0 : std::fabs(gate[i]) * c;
        return kU * d * std::fabs(up[i]) * s * (1 + along) * 20 + tiny;
      });
    }
  }
}

// The logistic function and its complement within 8u, two products.
TEST(Glu, OfTheLogisticFunctionAndOfTheIdentityAgreesWithItsTwinInBothDirections) {
  for (DType dtype : kCompute) {
    const Tensor gate = Arguments(dtype, /*infinities=*/false);
    const Tensor up = Tensor::Random(gate.type(), 10, 2), d_h = Tensor::Random(gate.type(), 11, 2);
    const Attributes sigmoid{{"sigmoid", int64_t{1}}}, identity{{"identity", int64_t{1}}};
    const auto s = [&](int64_t i) { return Sigmoid(gate[i]); };
    ExpectConforms({Op::kGlu, {gate, up}, sigmoid},
                   [&](int, int64_t i) { return 10 * kU * s(i) * std::fabs(up[i]) + 2 * kTiny; });
    ExpectConforms({Op::kGluBackward, {d_h, gate, up}, sigmoid}, [&](int k, int64_t i) {
      const double slope = k == 1 ? s(i) : s(i) * Sigmoid(-gate[i]) * std::fabs(up[i]);
      return 20 * kU * std::fabs(d_h[i]) * slope + 4 * kTiny;
    });
    ExpectConforms({Op::kGlu, {gate, up}, identity},
                   [&](int, int64_t i) { return kU * std::fabs(gate[i] * up[i]) + kTiny; });
    ExpectConforms({Op::kGluBackward, {d_h, gate, up}, identity},
                   [&](int k, int64_t i) { return 2 * kU * std::fabs(d_h[i] * (k == 1 ? gate[i] : up[i])) + kTiny; });
  }
}

// The logistic function within 8u of what alpha * g rounds to, three more operations. Tails of every length.
TEST(Glu, OfClampedPairsAgreesWithItsTwinInBothDirections) {
  constexpr double kAlpha = 1.702, kLimit = 7;
  const Attributes clamped{{"clamped", int64_t{1}}, {"alpha", kAlpha}, {"limit", kLimit}};
  for (DType dtype : kCompute) {
    std::vector<Tensor> all;
    const Tensor arguments = Arguments(dtype, /*infinities=*/false);
    std::vector<double> x(static_cast<size_t>(arguments.type().shape.elements() / 2 * 2));
    for (size_t i = 0; i < x.size(); ++i) x[i] = arguments[static_cast<int64_t>(i)];
    all.push_back(Tensor::Of({dtype, {1, static_cast<int64_t>(x.size())}}, x));
    std::reverse(x.begin(), x.end());  // what was a gate is an up
    all.push_back(Tensor::Of({dtype, {1, static_cast<int64_t>(x.size())}}, x));
    for (const Shape& shape : kShapes) all.push_back(Tensor::Random({dtype, {shape[0], 2 * shape[1]}}, 9, 12));
    all.push_back(Tensor::Of({dtype, {1, 6}}, {kLimit, kLimit, 1, -kLimit, 1, -7.5}));  // the bound itself
    for (const Tensor& pairs : all) {
      const Tensor d_h = Tensor::Random({dtype, {pairs.type().shape[0], pairs.type().shape[1] / 2}}, 11, 2);
      const auto g = [&](int64_t i) { return pairs[2 * i] > kLimit ? kLimit : pairs[2 * i]; };
      const auto u = [&](int64_t i) { return std::clamp(pairs[2 * i + 1], -kLimit, kLimit); };
      const auto s = [&](int64_t i) { return Sigmoid(kAlpha * g(i)); };
      // The rounding of alpha * g moves s by u |alpha g| (1 - s), relative.
      const auto off = [&](int64_t i) {
        const double c = Sigmoid(-kAlpha * g(i));
        return s(i) == 0 || c == 0 ? 12.0 : 12 + 2 * std::fabs(kAlpha * g(i)) * c;
      };
      ExpectConforms({Op::kGlu, {pairs}, clamped}, [&](int, int64_t i) {
        return off(i) * kU * std::fabs(g(i)) * s(i) * (std::fabs(u(i)) + 1) + 8 * Underflow(kAlpha * g(i));
      });
      ExpectConforms({Op::kGluBackward, {d_h, pairs}, clamped}, [&](int, int64_t n) {
        const int64_t i = n / 2;
        const double d = std::fabs(d_h[i]), tiny = 32 * Underflow(kAlpha * g(i)), c = Sigmoid(-kAlpha * g(i));
        if (n % 2 == 1) return off(i) * kU * d * s(i) * std::fabs(g(i)) + tiny;
        const double along = s(i) == 0 || c == 0 ? 0 : std::fabs(kAlpha * g(i)) * c;
        return 2 * off(i) * kU * d * (std::fabs(u(i)) + 1) * s(i) * (1 + along) + tiny;
      });
    }
  }
}

// The bounds of gelu, times up, with one more product.
TEST(Glu, OfGeluAgreesWithItsTwinInBothDirections) {
  for (DType dtype : kCompute) {
    const Tensor gate = Arguments(dtype, /*infinities=*/false);
    const Tensor up = Tensor::Random(gate.type(), 10, 2), d_h = Tensor::Random(gate.type(), 11, 2);
    const auto twice_z = [&](int64_t i) {
      return 2 * std::sqrt(2 / M_PI) * (gate[i] + 0.044715 * gate[i] * gate[i] * gate[i]);
    };
    for (const bool tanh : {false, true}) {
      // Relative errors, in u, of gelu(x) = x * share; and of its two terms' magnitudes.
      const auto share = [&](int64_t i) { return tanh ? Sigmoid(twice_z(i)) : std::erfc(-gate[i] / std::sqrt(2)) / 2; };
      const auto value_off = [&](int64_t i) {
        const double s = Sigmoid(twice_z(i)), c = Sigmoid(-twice_z(i));
        const double sensitive = s == 0 || c == 0 ? 0 : std::fabs(twice_z(i)) * c;
        return (tanh ? 11 + 5 * sensitive : 31) * kU * std::fabs(gate[i]) * share(i) + Underflow(gate[i]);
      };
      const auto slope_off = [&](int64_t i) {
        if (!tanh) {
          const double density = std::exp(-gate[i] * gate[i] / 2) / std::sqrt(2 * M_PI);
          return 33 * kU * (share(i) + std::fabs(gate[i]) * density) + Underflow(gate[i]);
        }
        const double s = Sigmoid(twice_z(i)), c = Sigmoid(-twice_z(i)),
                     z2 = s == 0 || c == 0 ? 0 : std::fabs(twice_z(i));
        const double inner = 2 * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * gate[i] * gate[i]);
        const double second = s == 0 || c == 0 ? 0 : std::fabs(gate[i]) * s * c * inner;
        return kU * (s * (11 + 5 * z2 * c) + second * (25 + 5 * z2)) + 104 * Underflow(gate[i]);
      };
      const Attributes activation{{"gelu", int64_t{1}}, {"tanh", int64_t{tanh}}};
      ExpectConforms({Op::kGlu, {gate, up}, activation},
                     [&](int, int64_t i) { return value_off(i) * std::fabs(up[i]) + kTiny; });
      ExpectConforms({Op::kGluBackward, {d_h, gate, up}, activation}, [&](int k, int64_t i) {
        return std::fabs(d_h[i]) * (k == 1 ? value_off(i) : slope_off(i) * std::fabs(up[i])) + kTiny;
      });
    }
  }
}

// backend/cpu/vector/exp-inl.h: tanh within 6u; three roundings of 1 / cap, of its argument and of the product.
TEST(Softcap, AgreesWithItsTwin) {
  for (DType dtype : kCompute) {
    for (const double cap : {0.5, 30.0}) {
      std::vector<Tensor> inputs;
      inputs.push_back(Arguments(dtype));
      for (const Shape& shape : kShapes) inputs.push_back(Tensor::Random({dtype, shape}, 9, 80));
      for (const Tensor& x : inputs) {
        const OpCase softcap{Op::kSoftcap, {x}, {{"cap", cap}}};
        const Tensor y = RunOn(ReferenceKernels(), softcap, 1)[0];
        for (int64_t i = 0; i < x.type().shape.elements(); ++i) {
          if (std::isnan(x[i])) continue;
          ASSERT_NEAR(y[i], cap * std::tanh(x[i] / cap), UnitRoundoff(dtype) * std::fabs(y[i]));
        }
        ExpectConforms(softcap, [&](int, int64_t i) { return 9 * kU * std::fabs(y[i]) + 2 * kTiny; });
      }
    }
  }
}

Tensor Rng(int64_t seed, int64_t step, int64_t first_token) {
  Tensor rng({DType::kI64, {kNumRngWords}});
  rng.Set(kRngSeed, static_cast<double>(seed));
  rng.Set(kRngStep, static_cast<double>(step));
  rng.Set(kRngFirstToken, static_cast<double>(first_token));
  return rng;
}

TEST(Dropout, DropsTheElementsThatItsTwinDrops) {
  for (DType dtype : kCompute) {
    for (double p : {0.0, 0.05, 0.1, 1.0 / 3, 0.5, 0.999}) {
      for (const Shape& shape : kShapes) {
        const Tensor x = Tensor::Random({dtype, shape}, 12);
        for (int64_t first_token : {int64_t{0}, int64_t{13}, int64_t{1} << 36}) {
          const OpCase dropout{
              Op::kDropout, {x, Rng(1234567, 42, first_token)}, {{"p", p}}, HashName("layers.3.q_proj.lora")};
          // 1 / (1-p) and the product are rounded once each.
          ExpectConforms(dropout, [&](int, int64_t i) { return 2 * kU * std::fabs(x[i]) / (1 - p); });
        }
      }
    }
  }
}

TEST(Dropout, KeepsADrawOfExactlyP) {
  const Tensor x = Tensor::Of({DType::kF32, {1, 100}}, std::vector<double>(100, 1.0));
  for (Isa isa : RunnableIsas()) {
    const auto kernels = MakeCpuKernels({.isa = isa});
    for (int64_t i : {0, 17, 66, 99}) {
      const double u = UniformAt({.seed = 5, .name_hash = 7, .step = 6}, static_cast<uint64_t>(i));
      const auto kept = [&](double p) {
        return RunOn(*kernels, {Op::kDropout, {x, Rng(5, 6, 0)}, {{"p", p}}, 7}, 1)[0][i] != 0;
      };
      EXPECT_TRUE(kept(u)) << i << " on " << ToString(isa);
      EXPECT_FALSE(kept(std::nextafter(u, 1.0))) << i << " on " << ToString(isa);
    }
  }
}

// The magnitude and the product with it are rounded once each, and the sum.
TEST(Noise, AgreesWithItsTwinWhichIsTheFormula) {
  for (DType dtype : kCompute) {
    for (const Shape& shape : kShapes) {
      const Tensor x = Tensor::Random({dtype, shape}, 12);
      for (int64_t first_token : {int64_t{0}, int64_t{13}, int64_t{1} << 36}) {
        const OpCase noise{
            Op::kNoise, {x, Rng(1234567, 42, first_token)}, {{"magnitude", 0.3}}, HashName("model.noise")};
        ExpectConforms(noise, [&](int, int64_t i) { return 3 * kU * (std::fabs(x[i]) + 0.3); });
        if (dtype != DType::kF32) continue;
        const Tensor y = RunOn(ReferenceKernels(), noise, 1)[0];
        const RngKey key{.seed = 1234567, .name_hash = HashName("model.noise"), .step = 42};
        for (int64_t i = 0; i < shape.elements(); ++i) {
          const auto place = static_cast<uint64_t>(first_token * shape.columns() + i);
          ASSERT_FLOAT_EQ(y[i], x[i] + 0.3 * (2 * UniformAt(key, place) - 1));
        }
      }
    }
  }
}

TEST(StochasticRound, GivesTheBitsOfItsTwin) {
  for (const Shape& shape : kShapes) {
    Tensor x = Tensor::Random({DType::kF32, shape}, 12);
    const double special[] = {0.0, -0.0, 0x1p-149, -0x1.8p-127, 0x1.fep127, -0x1.fffffep127, INFINITY, -INFINITY, 1.0};
    for (int64_t i = 0; i < std::min<int64_t>(shape.elements(), std::ssize(special)); ++i) x.Set(i, special[i]);
    const OpCase round{Op::kStochasticRound, {x, Rng(1234567, 42, 0)}, {}, HashName("rounded:w")};
    ExpectConforms(round, [](int, int64_t) { return 0; });
  }
}

// Each of 4,096 numbers with the same 16 lower bits: one of two neighbours, the upper one as often as the bits say
// (five deviations), away from zero for either sign.
TEST(StochasticRound, IsOneOfTwoNeighboursAndOnAverageTheNumber) {
  constexpr int64_t kNumbers = 4096;
  for (const double sign : {1.0, -1.0}) {
    for (const int64_t lower : {int64_t{0}, int64_t{1}, int64_t{0x4000}, int64_t{0x8000}, int64_t{0xFFFF}}) {
      const double spacing = 0x1p-7, odds = static_cast<double>(lower) / 65536, x = sign * (1 + odds * spacing);
      const Tensor all = Tensor::Of({DType::kF32, {kNumbers / 64, 64}}, std::vector<double>(kNumbers, x));
      const Tensor y = RunOn(ReferenceKernels(), {Op::kStochasticRound, {all, Rng(5, 6, 0)}, {}, 7}, 1)[0];
      int64_t away = 0;
      for (int64_t i = 0; i < kNumbers; ++i) {
        ASSERT_TRUE(y[i] == sign || y[i] == sign * (1 + spacing)) << y[i];
        away += y[i] != sign;
      }
      const double deviation = std::sqrt(kNumbers * odds * (1 - odds));
      EXPECT_NEAR(static_cast<double>(away), odds * kNumbers, 5 * deviation) << lower;
    }
  }
}

// Rows, columns, and rows of every matrix of a stack, as ranks have them.
TEST(StochasticRound, OfPartsIsThatOfTheWholeToTheBit) {
  constexpr int64_t kE = 3, kR = 10, kC = 77;
  const Tensor whole = Tensor::Random({DType::kF32, {kE * kR, kC}}, 14);
  for (Isa isa : RunnableIsas()) {
    const auto kernels = MakeCpuKernels({.isa = isa});
    const auto rounded = [&](const Tensor& x, const Attributes& place) {
      return RunOn(*kernels, {Op::kStochasticRound, {x, Rng(5, 6, 0)}, place, 7}, 2)[0];
    };
    const Tensor all = rounded(whole, {});
    for (const auto& [row, rows, column, columns] :
         {std::array<int64_t, 4>{0, 12, 0, 77}, {12, 18, 0, 77}, {0, 30, 5, 40}, {7, 9, 64, 13}}) {
      const auto part = [&, row = row, rows = rows, column = column, columns = columns](const Tensor& x) {
        Tensor of({x.type().dtype, {rows, columns}});
        for (int64_t i = 0; i < rows * columns; ++i) of.Set(i, x[(row + i / columns) * kC + column + i % columns]);
        return of;
      };
      EXPECT_TRUE(rounded(part(whole), {{"row", row}, {"column", column}, {"columns", kC}}).SameBytes(part(all)));
    }
    for (const auto& [begin, count] : {std::pair<int64_t, int64_t>{0, 4}, {4, 6}}) {  // of the rows of each matrix
      const auto part = [&, begin = begin, count = count](const Tensor& x) {
        Tensor of({x.type().dtype, {kE, count, kC}});
        for (int64_t i = 0; i < kE * count * kC; ++i) {
          const int64_t matrix = i / (count * kC), row = begin + i / kC % count;
          of.Set(i, x[(matrix * kR + row) * kC + i % kC]);
        }
        return of;
      };
      const Attributes place = {
          {"row", int64_t{0}}, {"column", begin * kC}, {"columns", kC}, {"packed_row", count}, {"drawn_row", kR}};
      EXPECT_TRUE(rounded(part(whole), place).SameBytes(part(all))) << begin;
    }
  }
}

TEST(Dropout, OfTheRowsOfABatchIsThatOfTheBatch) {
  for (int64_t columns : {7, 64}) {
    const Tensor whole = Tensor::Random({DType::kF32, {40, columns}}, 13);
    for (Isa isa : RunnableIsas()) {
      const auto kernels = MakeCpuKernels({.isa = isa});
      const Tensor all = RunOn(*kernels, {Op::kDropout, {whole, Rng(5, 6, 0)}, {{"p", 0.5}}, 7}, 1)[0];
      for (int64_t begin : {0, 1, 11, 32}) {
        const Tensor rows = RunOn(*kernels, {Op::kSliceRows, {whole}, {{"begin", begin}, {"count", int64_t{8}}}}, 1)[0];
        const Tensor part = RunOn(*kernels, {Op::kDropout, {rows, Rng(5, 6, begin)}, {{"p", 0.5}}, 7}, 1)[0];
        for (int64_t i = 0; i < 8 * columns; ++i) ASSERT_EQ(part[i], all[begin * columns + i]) << ToString(isa);
      }
    }
  }
}

// Columns [begin, begin + count) of x.
Tensor Columns(const Tensor& x, int64_t begin, int64_t count) {
  const int64_t rows = x.type().shape[0], columns = x.type().shape[1];
  Tensor part({x.type().dtype, {rows, count}});
  for (int64_t i = 0; i < rows * count; ++i) part.Set(i, x[i / count * columns + begin + i % count]);
  return part;
}

Tensor Rows(const Tensor& x, int64_t begin, int64_t count) {
  return RunOn(ReferenceKernels(), {Op::kSliceRows, {x}, {{"begin", begin}, {"count", count}}}, 1)[0];
}

// The ops that draw a number per element, with their own attribute.
const std::pair<Op, std::pair<const char*, double>> kDrawing[] = {{Op::kDropout, {"p", 0.5}},
                                                                  {Op::kNoise, {"magnitude", 0.5}}};

TEST(Draws, OfPartsAreThoseOfTheWholeToTheBit) {
  constexpr int64_t kFirstToken = 3;
  for (const auto& [op, own] : kDrawing)
    for (DType dtype : kCompute) {
      // Splits at and beside multiples of 4 (draws of a counter) and of 64 (a range), parts narrower than a range, a
      // whole wider than a thread's portion.
      for (const std::vector<int64_t>& cuts : std::vector<std::vector<int64_t>>{
               {0, 5, 7}, {0, 1, 2, 3}, {0, 64, 128}, {0, 63, 130, 131}, {0, 4099, 8201}}) {
        const int64_t columns = cuts.back(), rows = columns > 1000 ? 5 : 40;
        const Tensor whole = Tensor::Random({dtype, {rows, columns}}, 14);
        for (Isa isa : RunnableIsas()) {
          const auto kernels = MakeCpuKernels({.threads = 3, .isa = isa});
          const Tensor all = RunOn(*kernels, {op, {whole, Rng(5, 6, kFirstToken)}, {own}, 7}, 1)[0];
          for (size_t i = 0; i + 1 < cuts.size(); ++i) {
            for (auto [row, count] : {std::pair<int64_t, int64_t>{0, rows}, {rows / 3, rows / 2}, {2, 0}}) {
              const int64_t width = cuts[i + 1] - cuts[i];
              const Attributes attributes{own, {"row", row}, {"column", cuts[i]}, {"columns", columns}};
              const OpCase part{
                  op, {Columns(Rows(whole, row, count), cuts[i], width), Rng(5, 6, kFirstToken)}, attributes, 7};
              const Tensor want = Columns(Rows(all, row, count), cuts[i], width);
              for (int threads : {1, 3}) {
                EXPECT_TRUE(RunOn(*kernels, part, threads)[0].SameBytes(want))
                    << ToString(dtype) << " columns from " << cuts[i] << " of " << columns << " on " << ToString(isa);
                EXPECT_TRUE(RunOn(*kernels, part, threads, /*in_place=*/true)[0].SameBytes(want)) << ToString(isa);
              }
            }
          }
        }
      }
    }
}

// A rank of cp has chunks of every row; it draws the same there as one rank.
TEST(Draws, OfSplitTokensAreThoseOfTheWholeToTheBit) {
  constexpr int64_t kFirstToken = 24, kRow = 24, kTokens = 2 * kRow;
  for (const auto& [op, own] : kDrawing)
    for (DType dtype : kCompute) {
      for (const auto& [columns, column, width] : {std::array<int64_t, 3>{7, 0, 7}, {64, 0, 64}, {130, 3, 70}}) {
        const Tensor whole = Tensor::Random({dtype, {kTokens, columns}}, 16);
        const Tensor all = RunOn(ReferenceKernels(), {op, {whole, Rng(5, 6, kFirstToken)}, {own}, 7}, 1)[0];
        for (const int64_t ranks : {2, 3}) {
          const ContextPart part{kRow, ranks, ranks - 1};
          const int64_t first = 3, T = kTokens / ranks - first;  // the part of one tensor rank
          Tensor x({dtype, {T, width}});
          for (int64_t i = 0; i < T * width; ++i) {
            x.Set(i, whole[part.PlaceOf(first + i / width) * columns + column + i % width]);
          }
          const OpCase dealt{op,
                             {x, Rng(5, 6, kFirstToken)},
                             {own,
                              {"row", first},
                              {"column", column},
                              {"columns", columns},
                              {"packed_row", kRow},
                              {"ranks", ranks},
                              {"index", ranks - 1}},
                             7};
          const Tensor twin = RunOn(ReferenceKernels(), dealt, 1)[0];
          for (int64_t i = 0; i < T * width; ++i) {
            EXPECT_EQ(twin[i], all[part.PlaceOf(first + i / width) * columns + column + i % width]);
          }
          ExpectConforms(dealt, [&](int, int64_t i) { return 2 * kU * (std::fabs(x[i]) / 0.5 + 0.5); });
        }
      }
    }
}

// Shorter rows of a run draw what its longer ones do, also where ranks of cp share them.
TEST(Draws, OfShorterRowsAreThoseOfLongerOnesToTheBit) {
  constexpr int64_t kLonger = 24, kRow = 8, kRows = 3, kFirstToken = 2 * kLonger;
  for (const auto& [op, own] : kDrawing)
    for (DType dtype : kCompute) {
      for (const int64_t columns : {7, 64, 130}) {
        const Tensor whole = Tensor::Random({dtype, {kRows * kLonger, columns}}, 17);
        const Tensor all = RunOn(ReferenceKernels(), {op, {whole, Rng(5, 6, kFirstToken)}, {own}, 7}, 1)[0];
        for (const int64_t ranks : {1, 2}) {
          const ContextPart part{kRow, ranks, ranks - 1};
          const int64_t T = kRows * kRow / ranks;
          const auto place = [&](int64_t i) {  // of the longer rows' elements
            const int64_t token = part.PlaceOf(i / columns);
            return (token / kRow * kLonger + token % kRow) * columns + i % columns;
          };
          Tensor x({dtype, {T, columns}});
          for (int64_t i = 0; i < T * columns; ++i) x.Set(i, whole[place(i)]);
          Attributes attributes{own, {"packed_row", kRow}, {"drawn_row", kLonger}};
          if (ranks > 1) {
            attributes.Set("ranks", ranks);
            attributes.Set("index", ranks - 1);
          }
          const OpCase shorter{op, {x, Rng(5, 6, kFirstToken)}, attributes, 7};
          const Tensor twin = RunOn(ReferenceKernels(), shorter, 1)[0];
          for (int64_t i = 0; i < T * columns; ++i) EXPECT_EQ(twin[i], all[place(i)]);
          ExpectConforms(shorter, [&](int, int64_t i) { return 2 * kU * (std::fabs(x[i]) / 0.5 + 0.5); });
        }
      }
    }
}

TEST(Dropout, OfAPartAgreesWithItsTwin) {
  for (DType dtype : kCompute) {
    for (auto [T, C, column, columns] : {std::array<int64_t, 4>{9, 7, 2, 10}, {33, 64, 64, 256}, {3, 5000, 17, 9999}}) {
      const Tensor x = Tensor::Random({dtype, {T, C}}, 15);
      for (int64_t first_token : {int64_t{0}, int64_t{1} << 36}) {
        const OpCase dropout{Op::kDropout,
                             {x, Rng(77, 3, first_token)},
                             {{"p", 0.1}, {"row", int64_t{11}}, {"column", column}, {"columns", columns}},
                             HashName("layers.1.down_proj.lora")};
        ExpectConforms(dropout, [&](int, int64_t i) { return 2 * kU * std::fabs(x[i]) / 0.9; });
      }
    }
  }
}

TEST(Dropout, ZeroesWhatItDropsEvenWhereItWasNaN) {
  const Tensor x({DType::kF32, {4, 1000}});  // all NaN
  for (Isa isa : RunnableIsas()) {
    const auto y = RunOn(*MakeCpuKernels({.isa = isa}), {Op::kDropout, {x, Rng(1, 2, 0)}, {{"p", 0.5}}, 3}, 1);
    int64_t dropped = 0;
    for (int64_t i = 0; i < 4000; ++i) dropped += y[0][i] == 0;
    EXPECT_NEAR(dropped, 2000, 6 * std::sqrt(1000.0));
  }
}

}  // namespace
}  // namespace temper::elementwise_test
