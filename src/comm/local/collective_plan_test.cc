#include "comm/local/collective_plan.h"
#include "graph/named_ops.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace temper::collective_plan_test {
namespace {

KernelSpec Spec(Op op, Shape in, Shape out, int dim) {
  return {.op = op,
          .inputs = {{DType::kF32, in}},
          .outputs = {{DType::kF32, out}},
          .attributes = {{"axes", "fsdp"},
                         {"ranks", int64_t{3}},
                         {"dim", int64_t{dim}},
                         {"sizes", std::vector<double>{static_cast<double>(out[dim])}}}};
}

// The flags that choose a lane.
const std::vector<const char*> kSoon = {"background", "soon"};
KernelSpec InLane(KernelSpec spec, const std::vector<const char*>& flags) {
  for (const char* const flag : flags) spec.attributes.Set(flag, int64_t{1});
  return spec;
}

TEST(CollectivePlan, PartsOfAMiddleDimAreRowsOfTheWhole) {
  const KernelSpec spec = Spec(Op::kAllGather, {4, 2, 5}, {4, 9, 5}, 1);
  EXPECT_EQ(OwnPartSizes(spec), std::vector<int64_t>{2});
  const int64_t sizes[] = {2, 0, 7};
  const auto plan = PlanCollective(spec, 3, sizes);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const CollectiveTensor& t = plan->tensors[0];
  EXPECT_EQ(t.outer, 4);
  EXPECT_EQ(t.inner, 5);
  EXPECT_EQ(t.row(0), 10);
  EXPECT_EQ(t.row(1), 0);
  EXPECT_EQ(t.row(2), 35);
  EXPECT_EQ(t.row_begin(2, 3), (3 * 9 + 2) * 5);
  EXPECT_EQ(plan->bytes, Bytes{4 * 9 * 5 * 4});
}

TEST(CollectivePlan, PartsThatDoNotMakeUpTheWholeAreRefused) {
  const int64_t sizes[] = {2, 3, 3};
  const auto plan = PlanCollective(Spec(Op::kReduceScatter, {9, 5}, {2, 5}, 0), 3, sizes);
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.status().message().find("add up to 8 of 9"), std::string::npos) << plan.status().message();
}

TEST(CollectivePlan, AnAllReduceIsCutAtCacheLines) {
  KernelSpec spec{.op = Op::kAllReduce,
                  .inputs = {{DType::kBF16, {1000}}, {DType::kF64, {3}}},
                  .outputs = {{DType::kBF16, {1000}}, {DType::kF64, {3}}},
                  .attributes = {{"axes", "dp"}, {"ranks", int64_t{3}}}};
  const int64_t sizes[6] = {};
  const auto plan = PlanCollective(spec, 3, sizes);
  ASSERT_TRUE(plan.ok());
  for (const CollectiveTensor& t : plan->tensors) {
    int64_t at = 0;
    for (const Part& part : t.parts) {
      EXPECT_EQ(part.begin, at);
      EXPECT_TRUE(part.begin == t.whole || part.begin * t.element_bytes() % 64 == 0) << part.begin;
      at += part.count;
    }
    EXPECT_EQ(at, t.whole);
  }
}

TEST(CollectivePlan, MembersThatDifferInPartsOnlyDescribeTheSame) {
  const KernelSpec a = Spec(Op::kAllGather, {2, 5}, {9, 5}, 0), b = Spec(Op::kAllGather, {7, 5}, {9, 5}, 0);
  EXPECT_EQ(DescribeCollective(a), DescribeCollective(b));
  EXPECT_NE(DescribeCollective(a), DescribeCollective(Spec(Op::kAllGather, {2, 5}, {9, 6}, 0)));
  EXPECT_NE(DescribeCollective(a), DescribeCollective(Spec(Op::kReduceScatter, {9, 5}, {2, 5}, 0)));
}

// Members of different lanes would never meet.
TEST(CollectivePlan, OfLanesThatDifferIsNotTheSame) {
  std::set<std::string> texts;
  for (const std::vector<const char*>& flags : std::vector<std::vector<const char*>>{{}, {"background"}, kSoon}) {
    texts.insert(DescribeCollective(InLane(Spec(Op::kAllGather, {2, 5}, {9, 5}, 0), flags)));
  }
  EXPECT_EQ(texts.size(), 3u);
}

TEST(CollectivePlan, OfWeightsLargeEnoughForgetsWhatItHasReadOfPeersOfActivationsNot) {
  const auto forgets = [](int64_t rows, const std::vector<const char*>& flags) {
    const int64_t sizes[] = {rows, rows, rows};
    const auto plan = PlanCollective(InLane(Spec(Op::kAllGather, {rows, 1024}, {3 * rows, 1024}, 0), flags), 3, sizes);
    return plan.ok() && plan->forgets;
  };
  EXPECT_TRUE(forgets(100, {"background"}));
  EXPECT_FALSE(forgets(80, {"background"})) << "less than a MiB";
  EXPECT_FALSE(forgets(100, {})) << "needed at once";
  EXPECT_FALSE(forgets(100, kSoon));
}

}  // namespace
}  // namespace temper::collective_plan_test
