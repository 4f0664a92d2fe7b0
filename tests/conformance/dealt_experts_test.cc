// Ops of mixtures on a rank of the mesh axis ep, which has some of the experts: kernels against their twins, and what a
// rank makes against what one rank makes of all experts.
#include <gtest/gtest.h>

#include <cstring>

#include "backend/cpu/reference/reference.h"
#include "graph/named_ops.h"
#include "op_case.h"

namespace temper::dealt_experts_test {
namespace {

constexpr int64_t kTokens = 33, kExperts = 8, kActive = 3, kBegin = 2, kOwn = 4;
constexpr int64_t kPlaces = kTokens * kActive, kOut = 40, kIn = 72;

Tensor ExpertOfRows() {
  return RunOn(ReferenceKernels(),
               {Op::kRoute, {Tensor::Random({DType::kF32, {kTokens, kExperts}}, 1, 3)}, {{"active", kActive}}}, 1)[2];
}

// Matrices kBegin to kBegin + kOwn of a stack.
Tensor OwnOf(const Tensor& stack) {
  const Shape& all = stack.type().shape;
  Tensor own({stack.type().dtype, {kOwn, all[1], all[2]}});
  const int64_t n = all[1] * all[2];
  for (int64_t i = 0; i < own.type().shape.elements(); ++i) own.Set(i, stack[kBegin * n + i]);
  return own;
}

bool IsOwn(double expert) {
  return expert >= kBegin && expert < kBegin + kOwn;
}

TEST(DealtExperts, RowsOfOwnExpertsAreThoseOfOneRankAndOthersAreZero) {
  const Tensor expert = ExpertOfRows();
  for (const DType dtype : kCompute) {
    const Tensor x = Tensor::Random({dtype, {kPlaces, kIn}}, 3), y = Tensor::Random({dtype, {kPlaces, kOut}}, 5);
    const Tensor w = Tensor::Random({dtype, {kExperts, kOut, kIn}}, 4), own_w = OwnOf(w);
    for (const bool dx : {false, true}) {
      const Op op = dx ? Op::kGroupedLinearDx : Op::kGroupedLinear;
      for (const bool acc : {false, true}) {
        Attributes whole{{"active", kActive}, {"acc", int64_t{acc}}, {"scale", 0.5}}, part = whole;
        part.Set("begin", kBegin);
        part.Set("whole", kExperts);
        part.Set("split", std::string("ep"));
        std::vector<Tensor> all = {dx ? y : x, w, expert}, own = {dx ? y : x, own_w, expert};
        if (acc) {
          all.push_back(dx ? x : y);
          own.push_back(dx ? x : y);
        }
        const auto terms = static_cast<double>(dx ? kOut : kIn);
        ExpectConforms({op, own, part}, [=](int, int64_t) { return kU * (terms + 2) * (terms + 2); });
        const Tensor of_all = RunOn(ReferenceKernels(), {op, all, whole}, 1)[0],
                     of_own = RunOn(ReferenceKernels(), {op, own, part}, 1)[0];
        const int64_t n = of_all.type().shape[1];
        for (int64_t i = 0; i < kPlaces * n; ++i) {
          ASSERT_EQ(of_own[i], IsOwn(expert[i / n]) ? of_all[i] : 0) << "element " << i;
        }
      }
    }
  }
}

TEST(DealtExperts, GradientsOfOwnMatricesAreThoseOfOneRank) {
  const Tensor expert = ExpertOfRows();
  const Tensor x = Tensor::Random({DType::kF32, {kPlaces, kIn}}, 3),
               d_y = Tensor::Random({DType::kF32, {kPlaces, kOut}}, 5);
  const Tensor before = Tensor::Random({DType::kF32, {kOwn, kOut, kIn}}, 6);
  Attributes whole{{"active", kActive}, {"matrices", kExperts}};
  Attributes part{{"active", kActive}, {"matrices", kOwn}, {"begin", kBegin}, {"whole", kExperts}};
  const auto within = [](int, int64_t) { return kU * (kTokens + 2) * (kTokens + 2); };
  ExpectConforms({Op::kGroupedLinearDw, {d_y, x, expert}, part}, within);
  const Tensor all = OwnOf(RunOn(ReferenceKernels(), {Op::kGroupedLinearDw, {d_y, x, expert}, whole}, 1)[0]),
               own = RunOn(ReferenceKernels(), {Op::kGroupedLinearDw, {d_y, x, expert}, part}, 1)[0];
  EXPECT_TRUE(own.SameBytes(all));
  part.Set("acc", int64_t{1});
  ExpectConforms({Op::kGroupedLinearDw, {d_y, x, expert, before}, part}, within);
}

// Adapters are whole matrices of all experts.
TEST(DealtExperts, AdaptersAreUnstackedForOwnExperts) {
  for (const int64_t interleaved : {0, 1}) {
    const Shape shape = interleaved == 1 ? Shape{kOut, 4 * kExperts} : Shape{kExperts * 4, kIn};
    Attributes part{{"matrices", kExperts}, {"interleaved", interleaved}, {"begin", kBegin}, {"count", kOwn}};
    const Tensor w = Tensor::Random({DType::kF32, shape}, 1);
    ExpectConforms({Op::kUnstack, {w}, part}, [](int, int64_t) { return 0; });
    const Tensor own = RunOn(ReferenceKernels(), {Op::kUnstack, {w}, part}, 1)[0];
    Attributes whole{{"matrices", kExperts}, {"interleaved", interleaved}};
    EXPECT_TRUE(own.SameBytes(OwnOf(RunOn(ReferenceKernels(), {Op::kUnstack, {w}, whole}, 1)[0])));

    Attributes back{{"interleaved", interleaved}, {"begin", kBegin}, {"whole", kExperts}};
    ExpectConforms({Op::kUnstackBackward, {own}, back}, [](int, int64_t) { return 0; });
    const Tensor d_w = RunOn(ReferenceKernels(), {Op::kUnstackBackward, {own}, back}, 1)[0];
    for (int64_t i = 0; i < shape.elements(); ++i) {
      const int64_t e = interleaved == 1 ? i % kExperts : i / (4 * kIn);
      ASSERT_EQ(d_w[i], IsOwn(static_cast<double>(e)) ? w[i] : 0) << "element " << i;
    }
    back.Set("acc", int64_t{1});
    ExpectConforms({Op::kUnstackBackward, {own, w}, back}, [](int, int64_t) { return kU; });
  }
}

}  // namespace
}  // namespace temper::dealt_experts_test
