// Ops of mixtures of experts: the fast kernels against their twins, and what a token's result may depend on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/reference/reference.h"
#include "graph/named_ops.h"
#include "op_case.h"
#include "tensor/quantise_for_test.h"

namespace temper::experts_test {
namespace {

// Of tokens, experts, those of a token.
struct Sizes {
  int64_t T, E, A;
};
constexpr Sizes kSizes[] = {{1, 1, 1}, {5, 4, 4}, {33, 8, 2}, {150, 16, 3}};

struct Routed {
  Tensor weight, place, expert;
};
Routed RoutedOf(const Sizes& s, uint64_t seed = 1) {
  const auto out = RunOn(ReferenceKernels(),
                         {Op::kRoute, {Tensor::Random({DType::kF32, {s.T, s.E}}, seed, 3)}, {{"active", s.A}}}, 1);
  return {out[0], out[1], out[2]};
}

// Weights are quotients of sums of exponentials: each has a few roundoffs more than terms.
TEST(Experts, RouteChoosesAndPlacesAsItsTwin) {
  for (const DType dtype : kCompute) {
    for (const Sizes& s : kSizes) {
      const Tensor logits = Tensor::Random({dtype, {s.T, s.E}}, 1, 3);
      const Tensor bias = Tensor::Random({DType::kF32, {s.E}}, 2, 0.5);
      for (const int64_t sigmoid : {0, 1}) {
        for (const int64_t normalise : {0, 1}) {
          const double bound = 8 * kU * static_cast<double>(s.E + 4);
          Attributes attributes{{"active", s.A}, {"sigmoid", sigmoid}, {"normalise", normalise}, {"scale", 2.5}};
          ExpectConforms({Op::kRoute, {logits}, attributes}, [=](int k, int64_t) { return k == 0 ? bound * 2.5 : 0; });
          if (s.E % 4 != 0 || s.A > s.E / 2) continue;
          attributes.Set("groups", int64_t{4});
          attributes.Set("top_groups", int64_t{2});
          attributes.Set("bias", int64_t{1});
          ExpectConforms({Op::kRoute, {logits, bias}, attributes},
                         [=](int k, int64_t) { return k == 0 ? bound * 2.5 : 0; });
        }
      }
    }
  }
}

TEST(Experts, RouteSortsRowsByExpertAndTokenAndKeepsTheBestFirst) {
  const Sizes s{33, 8, 3};
  const Tensor logits = Tensor::Random({DType::kF32, {s.T, s.E}}, 1, 3);
  const Routed r = RoutedOf(s);
  std::vector<int64_t> token_of(static_cast<size_t>(s.T * s.A), -1);
  for (int64_t i = 0; i < s.T * s.A; ++i) {
    auto& token = token_of.at(static_cast<size_t>(r.place[i]));
    EXPECT_EQ(token, -1) << "a row of two tokens";
    token = i / s.A;
    if (i % s.A == 0) continue;
    EXPECT_GE(r.weight[i - 1], r.weight[i]);
  }
  for (int64_t p = 1; p < s.T * s.A; ++p) {
    const auto before = token_of[static_cast<size_t>(p - 1)], now = token_of[static_cast<size_t>(p)];
    EXPECT_TRUE(r.expert[p - 1] < r.expert[p] || (r.expert[p - 1] == r.expert[p] && before < now)) << p;
  }
  for (int64_t t = 0; t < s.T; ++t) {  // no expert that was left out is better than one that was chosen
    std::vector<double> chosen(static_cast<size_t>(s.E), 0);
    double worst = INFINITY;
    for (int64_t a = 0; a < s.A; ++a) {
      const auto e = static_cast<size_t>(r.expert[static_cast<int64_t>(r.place[t * s.A + a])]);
      chosen[e] = 1;
      worst = std::min(worst, logits[t * s.E + static_cast<int64_t>(e)]);
    }
    EXPECT_EQ(std::count(chosen.begin(), chosen.end(), 1), s.A);
    for (int64_t e = 0; e < s.E; ++e) {
      EXPECT_TRUE(chosen[static_cast<size_t>(e)] == 1 || logits[t * s.E + e] <= worst);
    }
  }
}

// DeepSeek V3's: the bias chooses, the weights are of the scores without it.
TEST(Experts, ABiasChangesTheChoiceAndNotTheWeights) {
  const Tensor logits = Tensor::Of({DType::kF32, {1, 3}}, {2, 1, 0});
  const Tensor bias = Tensor::Of({DType::kF32, {3}}, {0, 0, 5});
  const auto out =
      RunOn(ReferenceKernels(),
            {Op::kRoute, {logits, bias}, {{"active", int64_t{1}}, {"sigmoid", int64_t{1}}, {"bias", int64_t{1}}}}, 1);
  EXPECT_EQ(out[2][0], 2);
  EXPECT_NEAR(out[0][0], 0.5, 1e-7);
}

TEST(Experts, ABiasOfMinusInfinityIsTheLastChoiceAndNoFault) {
  const Tensor logits = Tensor::Random({DType::kF32, {5, 8}}, 1, 3);
  Tensor bias = Tensor::Random({DType::kF32, {8}}, 2, 0.5);
  for (const int64_t e : {0, 1, 2, 3, 6}) bias.Set(e, -INFINITY);
  for (const int64_t groups : {0, 4}) {
    Attributes attributes{{"active", int64_t{4}}, {"sigmoid", int64_t{1}}, {"bias", int64_t{1}}};
    if (groups > 0) attributes.Set("groups", groups), attributes.Set("top_groups", int64_t{2});
    ExpectConforms({Op::kRoute, {logits, bias}, attributes}, [](int k, int64_t) { return k == 0 ? 64 * kU : 0; });
  }
}

TEST(Experts, ADivergedTokenGetsNanAndSpoilsNoOther) {
  Tensor logits = Tensor::Random({DType::kF32, {3, 4}}, 1);
  for (int64_t e = 0; e < 4; ++e) logits.Set(4 + e, NAN);
  for (const int64_t groups : {0, 2}) {
    Attributes attributes{{"active", int64_t{2}}};
    if (groups > 0) attributes.Set("groups", groups), attributes.Set("top_groups", int64_t{1});
    ExpectConforms({Op::kRoute, {logits}, attributes}, [](int k, int64_t) { return k == 0 ? 64 * kU : 0; });
    const auto out = RunOn(ReferenceKernels(), {Op::kRoute, {logits}, attributes}, 1);
    for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(std::isnan(out[0][i]), i / 2 == 1) << i;
  }
}

TEST(Experts, RouteBackwardAgreesWithItsTwin) {
  for (const DType dtype : kCompute) {
    for (const Sizes& s : kSizes) {
      const Tensor logits = Tensor::Random({dtype, {s.T, s.E}}, 1);
      const Tensor d_weight = Tensor::Random({DType::kF32, {s.T, s.A}}, 2);
      const Routed r = RoutedOf(s);
      for (const int64_t sigmoid : {0, 1}) {
        for (const int64_t normalise : {0, 1}) {
          // Differences of sums of at most E terms of size 1, divided by scores that are at least e^-2 / E, or by
          // sigmoid 0.26, together.
          const double largest = normalise == 0 ? 1
                                 : sigmoid != 0 ? 4
                                                : 8 * static_cast<double>(s.E) / static_cast<double>(s.A);
          ExpectConforms({Op::kRouteBackward,
                          {d_weight, logits, r.place, r.expert},
                          {{"active", s.A}, {"sigmoid", sigmoid}, {"normalise", normalise}}},
                         [=](int, int64_t) { return 4 * kU * static_cast<double>(s.E + 8) * largest; });
        }
      }
    }
  }
}

// Every third token is padding.
Tensor PresentOf(int64_t T) {
  Tensor present({DType::kF32, {T}});
  for (int64_t t = 0; t < T; ++t) present.Set(t, t % 3 == 2 ? 0 : 1);
  return present;
}

TEST(Experts, LoadsAreCountedAsByTheTwinAndPaddingIsNot) {
  for (const Sizes& s : kSizes) {
    const Routed r = RoutedOf(s);
    const Tensor acc = Tensor::Of({DType::kF32, {2, s.E}}, std::vector<double>(static_cast<size_t>(2 * s.E), 7));
    const Attributes first{{"blocks", int64_t{2}}, {"experts", s.E}};
    Attributes second = first;
    second.Set("block", int64_t{1});
    second.Set("acc", int64_t{1});
    const OpCase counts{Op::kExpertLoad, {r.expert, r.place, PresentOf(s.T)}, first};
    ExpectConforms(counts, [](int, int64_t) { return 0; });
    ExpectConforms({Op::kExpertLoad, {r.expert, r.place, PresentOf(s.T), acc}, second}, [](int, int64_t) { return 0; });
    const Tensor load = RunOn(ReferenceKernels(), counts, 1)[0];
    double all = 0;
    for (int64_t e = 0; e < s.E; ++e) {
      all += load[e];
      EXPECT_EQ(load[s.E + e], 0) << "of the other block";
    }
    EXPECT_EQ(all, static_cast<double>((s.T - s.T / 3) * s.A));
  }
}

// A probability has the roundoffs of a sum of E exponentials, and less than 128 of them are added up in f32.
TEST(Experts, ProbabilitiesAreAddedUpAsByTheTwinAlsoOfAPartOfTheExperts) {
  for (const DType dtype : kCompute) {
    for (const Sizes& s : kSizes) {
      const Tensor logits = Tensor::Random({dtype, {s.T, s.E}}, 1, 3), present = PresentOf(s.T);
      const auto terms = static_cast<double>(s.T);
      const double bound = kU * terms * (static_cast<double>(s.E) + 8 + std::min(terms, 128.0)) + 2 * kU;
      ExpectConforms({Op::kRouterSum, {logits, present}, {}}, [=](int, int64_t) { return bound; });
      const Tensor d = Tensor::Random({DType::kF32, {s.E}}, 2);
      const double d_bound = 4 * kU * (static_cast<double>(s.E) + 8);
      ExpectConforms({Op::kRouterSumBackward, {d, logits, present}, {}}, [=](int, int64_t) { return d_bound; });
      if (s.E < 4) continue;
      const Attributes part{{"begin", int64_t{1}}, {"count", int64_t{2}}, {"split", std::string("tp")}};
      const Tensor two = Tensor::Random({DType::kF32, {2}}, 3);
      Attributes added = part;
      added.Set("acc", int64_t{1});
      ExpectConforms({Op::kRouterSum, {logits, present, two}, added}, [=](int, int64_t) { return bound; });
      ExpectConforms({Op::kRouterSumBackward, {two, logits, present}, part}, [=](int, int64_t) { return d_bound; });
    }
  }
}

// Sums are in double, rounded once.
TEST(Experts, TheLossThatBalancesIsItsTwins) {
  const Tensor load = Tensor::Of({DType::kF32, {2, 4}}, {3, 1, 0, 2, 5, 0, 0, 1});
  const Tensor none = Tensor::Of({DType::kF32, {2, 4}}, std::vector<double>(8, 0)),
               d = Tensor::Of({DType::kF32, {1}}, {0.3});
  const Tensor sum = Tensor::Random({DType::kF32, {4}}, 1), two = Tensor::Random({DType::kF32, {2}}, 2);
  const Attributes all{{"active", int64_t{2}}};
  Attributes part = all;
  part.Set("begin", int64_t{1});
  for (const Tensor& some : {load, none}) {
    ExpectConforms({Op::kBalance, {some, sum}, all}, [](int, int64_t) { return 16 * kU; });
    ExpectConforms({Op::kBalance, {some, two}, part}, [](int, int64_t) { return 16 * kU; });
    Attributes backward = part;
    backward.Set("count", int64_t{2});
    ExpectConforms({Op::kBalanceBackward, {d, some}, backward}, [](int, int64_t) { return 16 * kU; });
  }
  EXPECT_EQ(RunOn(ReferenceKernels(), {Op::kBalance, {none, sum}, all}, 1)[0][0], 0) << "of no tokens";
}

TEST(Experts, RowsAreGatheredAndCombinedAsByTheTwins) {
  for (const DType dtype : kCompute) {
    for (const Sizes& s : kSizes) {
      const Routed r = RoutedOf(s);
      for (const int64_t D : {1, 19, 160}) {
        const Tensor x = Tensor::Random({dtype, {s.T, D}}, 3), y = Tensor::Random({dtype, {s.T * s.A, D}}, 4);
        const Tensor d_y = Tensor::Random({dtype, {s.T, D}}, 5);
        ExpectConforms({Op::kGatherRows, {x, r.place}, {}}, [](int, int64_t) { return 0; });
        const double terms = static_cast<double>(s.A + 2);
        const auto sums = [=](int, int64_t) { return kU * terms * terms + kTiny; };
        ExpectConforms({Op::kCombine, {y, r.place}, {}}, sums);
        ExpectConforms({Op::kCombine, {y, r.place, r.weight}, {{"weighted", int64_t{1}}}}, sums);
        ExpectConforms({Op::kCombine, {y, r.place, r.weight, x}, {{"weighted", int64_t{1}}, {"acc", int64_t{1}}}},
                       sums);
        ExpectConforms({Op::kCombineBackward, {d_y, y, r.place, r.weight}, {}},
                       [=](int k, int64_t) { return k == 0 ? kU + kTiny : kU * static_cast<double>(D + 2) + kTiny; });
      }
    }
  }
}

// Sums of `terms` products of numbers up to 1, in blocks.
TEST(Experts, GroupedProductsAgreeWithTheirTwins) {
  for (const DType dtype : kCompute) {
    for (const Sizes& s : kSizes) {
      const Routed r = RoutedOf(s);
      const int64_t P = s.T * s.A;
      for (const auto& [O, I] : {std::pair<int64_t, int64_t>{3, 5}, {40, 72}}) {
        const Tensor x = Tensor::Random({dtype, {P, I}}, 3), w = Tensor::Random({dtype, {s.E, O, I}}, 4);
        const Tensor y = Tensor::Random({dtype, {P, O}}, 5), before = Tensor::Random({DType::kF32, {s.E, O, I}}, 6);
        const auto within = [](int64_t terms) {
          return [=](int, int64_t) { return kU * static_cast<double>((terms + 2) * (terms + 2)); };
        };
        const Attributes plain{{"active", s.A}}, added{{"active", s.A}, {"acc", int64_t{1}}, {"scale", 0.5}};
        ExpectConforms({Op::kGroupedLinear, {x, w, r.expert}, plain}, within(I));
        ExpectConforms({Op::kGroupedLinear, {x, w, r.expert, y}, added}, within(I));
        ExpectConforms({Op::kGroupedLinearDx, {y, w, r.expert}, plain}, within(O));
        ExpectConforms({Op::kGroupedLinearDx, {y, w, r.expert, x}, added}, within(O));
        Attributes of_weight = plain, of_weight_added = added;
        of_weight.Set("matrices", s.E);
        of_weight_added.Set("matrices", s.E);
        ExpectConforms({Op::kGroupedLinearDw, {y, x, r.expert}, of_weight}, within(s.T));
        ExpectConforms({Op::kGroupedLinearDw, {y, x, r.expert, before}, of_weight_added}, within(s.T));
      }
    }
  }
}

// A stack packed as one matrix: `stack` has [E*O, I], the result [E, O, I].
Tensor PackedStack(const Tensor& stack, int64_t experts, ElementLayout layout) {
  const auto packed =
      RunOn(ReferenceKernels(),
            {Op::kCast, {stack}, {{"dtype", std::string("bf16")}, {"layout", std::string(ToString(layout))}}}, 1);
  const Shape& rows = stack.type().shape;
  Tensor out({DType::kBF16, {experts, rows[0] / experts, rows[1]}, layout});
  std::memcpy(out.data(), packed[0].data(), static_cast<size_t>(out.type().bytes().v));
  return out;
}

// Some instruction sets have no kernels that read panels: there the twin runs.
TEST(Experts, APackedStackGivesTheBitsOfTheSameRowMajor) {
  const Sizes s{33, 8, 2};
  const Routed r = RoutedOf(s);
  for (const auto& [O, I] : {std::pair<int64_t, int64_t>{32, 40}, {96, 70}}) {
    const Tensor rows = Tensor::Random({DType::kBF16, {s.E * O, I}}, 4);
    Tensor w({DType::kBF16, {s.E, O, I}});
    std::memcpy(w.data(), rows.data(), static_cast<size_t>(w.type().bytes().v));
    const Tensor x = Tensor::Random({DType::kBF16, {s.T * s.A, I}}, 3),
                 y = Tensor::Random({DType::kBF16, {s.T * s.A, O}}, 5);
    for (const Isa isa : RunnableIsas()) {
      if (isa > Isa::kScalar && !ReadsPackedWeights(isa)) continue;
      const auto kernels = MakeCpuKernels({.threads = 2, .isa = isa});
      for (const Op op : {Op::kGroupedLinear, Op::kGroupedLinearDx}) {
        const bool dx = op == Op::kGroupedLinearDx;
        const ElementLayout layout = dx ? ElementLayout::kRowPairs : ElementLayout::kColumnPairs;
        OpCase plain{op, {dx ? y : x, w, r.expert}, {{"active", s.A}}};
        OpCase packed{op, {dx ? y : x, PackedStack(rows, s.E, layout), r.expert}, {{"active", s.A}}};
        EXPECT_TRUE(RunOn(*kernels, packed, 2)[0].SameBytes(RunOn(*kernels, plain, 2)[0]))
            << ToString(op) << " on " << ToString(isa);
      }
    }
  }
}

// A stack of whole matrices that are quantised one by one, and their numbers in bf16.
std::pair<Tensor, Tensor> QuantisedStack(ElementFormat format, const Shape& shape) {
  const Tensor numbers = Tensor::Random({DType::kF32, shape}, 4);
  const std::span x(reinterpret_cast<const float*>(numbers.data()), static_cast<size_t>(shape.elements()));
  const std::vector<std::byte> bytes = Quantised(format, x, shape, {0, 0, 0}, shape);
  Tensor kept({format, shape}), values({DType::kBF16, shape});
  std::memcpy(kept.data(), bytes.data(), bytes.size());
  const int64_t n = shape.columns();
  for (int64_t i = 0; i < shape.elements(); ++i) {
    values.Set(i, ToFloat(format.Number(bytes.data() + i / n * format.RowBytes(n), n, i % n)));
  }
  return {std::move(kept), std::move(values)};
}

// As the twin, and with the bits of the same numbers in bf16. Of the odd sizes blocks of nf4 cross rows, and rows end
// within blocks.
TEST(Experts, AQuantisedStackGivesTheBitsOfItsNumbers) {
  for (const FormatRule* rule : FormatRules()) {
    const ElementFormat format = FormatWith(*rule);
    for (const Sizes& s : {Sizes{5, 4, 4}, Sizes{33, 8, 2}}) {
      const Routed r = RoutedOf(s);
      for (const auto& [O, I] : {std::pair<int64_t, int64_t>{3, 5}, {40, 72}}) {
        const auto [kept, values] = QuantisedStack(format, {s.E, O, I});
        const Tensor x = Tensor::Random({DType::kBF16, {s.T * s.A, I}}, 3),
                     y = Tensor::Random({DType::kBF16, {s.T * s.A, O}}, 5);
        const Attributes added{{"active", s.A}, {"acc", int64_t{1}}, {"scale", 0.5}};
        for (const bool dx : {false, true}) {
          const Op op = dx ? Op::kGroupedLinearDx : Op::kGroupedLinear;
          const OpCase of_kept{op, {dx ? y : x, kept, r.expert, dx ? x : y}, added};
          const OpCase of_values{op, {dx ? y : x, values, r.expert, dx ? x : y}, added};
          const auto terms = static_cast<double>(dx ? O : I);
          if (s.T == 5) ExpectConforms(of_kept, [=](int, int64_t) { return 4 * kU * (terms + 2) * (terms + 2); });
          for (const Isa isa : RunnableIsas()) {
            if (isa == Isa::kScalar) continue;  // the twin
            const auto kernels = MakeCpuKernels({.threads = 2, .isa = isa});
            EXPECT_TRUE(RunOn(*kernels, of_kept, 2)[0].SameBytes(RunOn(*kernels, of_values, 2)[0]))
                << ToString(op) << " of " << ToString(format) << " " << kept.type().shape.ToString() << " on "
                << ToString(isa);
          }
        }
      }
    }
  }
}

// Its matrices would begin within panels.
TEST(Experts, AStackOfOtherRowsThanWholePanelsIsNotReadPacked) {
  const TensorType x{DType::kBF16, {8, 16}}, expert{DType::kI32, {8}};
  for (const int64_t rows : {32, 33}) {
    const TensorType w{DType::kBF16, {3, rows, 16}, ElementLayout::kColumnPairs};
    EXPECT_EQ(InferTypes(Op::kGroupedLinear, {x, w, expert}, {{"active", int64_t{1}}}).ok(), rows == 32);
  }
}

TEST(Experts, AnExpertWithoutRowsHasAGradientOfZeroAndKeepsWhatThereWas) {
  const int64_t E = 5, O = 24, I = 40;
  const Tensor x = Tensor::Random({DType::kF32, {4, I}}, 3), d_y = Tensor::Random({DType::kF32, {4, O}}, 4);
  const Tensor expert = Tensor::Ints({1, 1, 3, 3}), before = Tensor::Random({DType::kF32, {E, O, I}}, 6);
  Attributes attributes{{"active", int64_t{1}}, {"matrices", E}};
  const auto table = MakeCpuKernels({.threads = 2});
  KernelTable& kernels = *table;
  const auto zero = RunOn(kernels, {Op::kGroupedLinearDw, {d_y, x, expert}, attributes}, 2);
  attributes.Set("acc", int64_t{1});
  const auto kept = RunOn(kernels, {Op::kGroupedLinearDw, {d_y, x, expert, before}, attributes}, 2);
  for (const int64_t e : {0, 2, 4}) {
    for (int64_t i = e * O * I; i < (e + 1) * O * I; ++i) {
      EXPECT_EQ(zero[0][i], 0);
      EXPECT_EQ(kept[0][i], before[i]);
    }
  }
}

// The same token with many others at its experts and with few, which are other plans of a product, through several
// blocks of its sum.
TEST(Experts, ATokensBitsDoNotDependOnWhoElseIsRoutedWhere) {
  const Sizes s{300, 6, 2};
  const int64_t D = 2600, F = 8;
  for (const DType dtype : kCompute) {
    const Tensor x = Tensor::Random({dtype, {s.T, D}}, 3), w = Tensor::Random({dtype, {s.E, F, D}}, 4);
    const Tensor logits = Tensor::Random({DType::kF32, {s.T, s.E}}, 5, 3);
    const Tensor others = Tensor::Random({DType::kF32, {s.T, s.E}}, 6, 3);
    for (const Isa isa : RunnableIsas()) {
      const auto table = MakeCpuKernels({.threads = 2, .isa = isa});
      KernelTable& kernels = *table;
      const auto outputs = [&](const Tensor& routed_by) {
        const auto routed = RunOn(kernels, {Op::kRoute, {routed_by}, {{"active", s.A}}}, 2);
        const auto rows = RunOn(kernels, {Op::kGatherRows, {x, routed[1]}, {}}, 2);
        const auto y = RunOn(kernels, {Op::kGroupedLinear, {rows[0], w, routed[2]}, {{"active", s.A}}}, 2);
        return RunOn(kernels, {Op::kCombine, {y[0], routed[1], routed[0]}, {{"weighted", int64_t{1}}}}, 2)[0];
      };
      // Token 9 as before; nearly all others go where it goes, or elsewhere.
      Tensor mixed = others, crowded = logits;
      for (int64_t i = 0; i < s.T * s.E; ++i) {
        if (i / s.E == 9) continue;
        crowded.Set(i, logits[9 * s.E + i % s.E] + 0.01 * logits[i]);
        mixed.Set(i, others[i] - logits[9 * s.E + i % s.E] * 4);
      }
      for (int64_t e = 0; e < s.E; ++e) mixed.Set(9 * s.E + e, logits[9 * s.E + e]);
      const Tensor a = outputs(crowded), b = outputs(mixed);
      int64_t changed = 0;
      for (int64_t d = 0; d < F; ++d) {
        EXPECT_EQ(a[9 * F + d], b[9 * F + d]) << ToString(isa);
        changed += a[10 * F + d] != b[10 * F + d];
      }
      EXPECT_GT(changed, 0);
    }
  }
}

TEST(Experts, RowsAndPlacesThatAreNotThereAreErrors) {
  const Tensor x = Tensor::Random({DType::kF32, {2, 8}}, 3), w = Tensor::Random({DType::kF32, {3, 4, 8}}, 4);
  const auto fails = [](KernelTable& kernels, const OpCase& c) {
    KernelSpec spec = SpecOf(c, 1);
    auto kernel = kernels.Make(spec);
    ASSERT_TRUE(kernel.ok());
    std::vector<Tensor> inputs = c.inputs, outputs;
    std::vector<std::byte*> in, out;
    for (Tensor& t : inputs) in.push_back(t.data());
    for (const TensorType& t : spec.outputs) outputs.emplace_back(t);
    for (Tensor& t : outputs) out.push_back(t.data());
    std::vector<std::byte> workspace(static_cast<size_t>(spec.workspace.v) + 64);
    auto* const aligned = workspace.data() + 63 - (reinterpret_cast<uintptr_t>(workspace.data()) + 63) % 64;
    EXPECT_FALSE((*kernel)->Run({in.data(), out.data(), aligned}).ok());
  };
  const auto table = MakeCpuKernels({.threads = 1});
  for (KernelTable* const kernels : {&ReferenceKernels(), table.get()}) {
    for (const auto& experts : {std::vector<int32_t>{0, 3}, {-1, 0}, {2, 1}}) {
      fails(*kernels, {Op::kGroupedLinear, {x, w, Tensor::Ints(experts)}, {{"active", int64_t{1}}}});
    }
    // Both rows of one token at one expert.
    fails(*kernels, {Op::kGroupedLinear, {x, w, Tensor::Ints({1, 1})}, {{"active", int64_t{2}}}});
    for (const int32_t place : {-1, 2}) {
      fails(*kernels, {Op::kCombine, {x, Tensor::Of({DType::kI32, {2, 1}}, {0, static_cast<double>(place)})}, {}});
      fails(*kernels, {Op::kGatherRows, {x, Tensor::Of({DType::kI32, {2, 1}}, {0, static_cast<double>(place)})}, {}});
    }
  }
}

}  // namespace
}  // namespace temper::experts_test
