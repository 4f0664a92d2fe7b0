// What every rule has to state: a new op that forgets a fact fails here, instead of being taken for something else by
// the pass that asks for it.
#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "graph/named_ops.h"
#include "graph/rule.h"

namespace temper::rule_facts_test {
namespace {

std::vector<Op> AllOps() {
  std::vector<Op> ops;
  for (int i = 0; i < NumOps(); ++i) ops.push_back(static_cast<Op>(i));
  return ops;
}

bool Computes(Op op) {
  return RuleOf(op).kind == OpKind::kProduct || RuleOf(op).kind == OpKind::kAttention;
}

TEST(RuleFacts, EveryOpStatesWhatBoundsIt) {
  for (const Op op : AllOps()) {
    SCOPED_TRACE(ToString(op));
    const OpRule& rule = RuleOf(op);
    EXPECT_NE(rule.kind, OpKind::kUnstated);
    EXPECT_EQ(rule.kind == OpKind::kCollective, IsCollective(op));
    EXPECT_EQ(rule.kind == OpKind::kProduct, rule.product != nullptr);
    EXPECT_NE(rule.infer, nullptr);
    EXPECT_NE(rule.cost, nullptr);
  }
}

// By its flow: operands have the dims of the outputs, or the last of them (a vector added to every row), none of which
// has to be whole.
TEST(RuleFacts, AnElementwiseOpReadsItsOperandsInPlace) {
  for (const Op op : AllOps()) {
    const OpRule& rule = RuleOf(op);
    if (rule.kind != OpKind::kElementwise) continue;
    SCOPED_TRACE(ToString(op));
    ASSERT_NE(rule.flow, nullptr);
    for (const FlowOutput& out : rule.flow->out) {
      const std::string_view dims = out.dims;
      for (const char letter : dims) EXPECT_TRUE(letter >= 'A' && letter <= 'Z') << dims;
      for (const FlowOperand& in : rule.flow->in) EXPECT_TRUE(dims.ends_with(in.dims)) << in.dims << " to " << dims;
    }
  }
}

TEST(RuleFacts, EveryOpWithAGradientSaysWhatItCostsToRunAgain) {
  for (const Op op : AllOps()) {
    const OpRule& rule = RuleOf(op);
    if (rule.gradient == nullptr) continue;
    EXPECT_NE(rule.recompute, RecomputeCost::kUnstated) << ToString(op);
    if (Computes(op) || IsCollective(op)) {
      EXPECT_EQ(rule.recompute, RecomputeCost::kExpensive) << ToString(op);
    }
  }
}

// MFU counts forward ops, whose backward follows from them.
TEST(RuleFacts, EveryForwardOpThatComputesStatesTheArithmeticOfTheModel) {
  for (const Op op : AllOps()) {
    const OpRule& rule = RuleOf(op);
    EXPECT_EQ(rule.model_work != nullptr, Computes(op) && rule.gradient != nullptr) << ToString(op);
  }
}

TEST(RuleFacts, WhatIsMeasuredFitsTheOp) {
  // Tables, parts and single numbers: their time is that of what they move.
  const std::set<Op> at_the_rate_of_memory = {Op::kSliceRows,
                                              Op::kSliceColumns,
                                              Op::kScaleBy,
                                              Op::kSliceColumnsBackward,
                                              Op::kUnstack,
                                              Op::kUnstackBackward,
                                              Op::kRopeTable,
                                              Op::kAppendToHeads,
                                              Op::kAppendToHeadsBackward,
                                              Op::kGateHeads,
                                              Op::kGateHeadsBackward,
                                              Op::kEmbeddingBackward,
                                              Op::kSumScalars,
                                              Op::kClip,
                                              Op::kFetch,
                                              Op::kEvict,
                                              Op::kPreference,
                                              Op::kClassReport,
                                              Op::kRewardLoss,
                                              Op::kUnpairedPreference,
                                              Op::kRoute,
                                              Op::kRouteBackward,
                                              Op::kExpertLoad,
                                              Op::kRouterSum,
                                              Op::kRouterSumBackward,
                                              Op::kBalance,
                                              Op::kBalanceBackward};
  for (const Op op : AllOps()) {
    SCOPED_TRACE(ToString(op));
    const OpRule& rule = RuleOf(op);
    EXPECT_EQ(rule.measured == nullptr && !rule.measured_as, IsCollective(op) || at_the_rate_of_memory.count(op) == 1);
    if (rule.measured_as) {
      EXPECT_EQ(rule.measured, nullptr);
      EXPECT_NE(RuleOf(*rule.measured_as).measured, nullptr);
      EXPECT_EQ(RuleOf(*rule.measured_as).kind, rule.kind);
    }
    if (rule.measured == nullptr) continue;
    EXPECT_FALSE(rule.measured(DType::kF32).empty());
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const MeasuredCase& c : rule.measured(dtype)) {
        const auto outputs = InferTypes(op, c.inputs, c.attributes);
        EXPECT_TRUE(outputs.ok()) << outputs.status().message();
      }
    }
  }
}

TEST(RuleFacts, AWindowBoundsThePairsThatAreCounted) {
  for (const int64_t length : {1, 2, 7, 64}) {
    for (const int64_t window : {0, 1, 3, 7, 8, 100}) {
      int64_t pairs = 0;
      for (int64_t query = 0; query < length; ++query) {
        for (int64_t key = 0; key <= query; ++key) pairs += window == 0 || query - key < window;
      }
      EXPECT_EQ(AttendedPairs(length, window), static_cast<double>(pairs)) << length << " within " << window;
    }
  }
  const TensorType q{DType::kF32, {6, 8}}, kv{DType::kF32, {6, 4}}, start{DType::kI32, {6}};
  ModelWork work;
  for (const int64_t window : {0, 5, 0}) {
    RuleOf(Op::kAttention).model_work({q, kv, kv, start}, {{"window", window}}, &work);
  }
  EXPECT_EQ(work.flops_per_pair, (std::map<int64_t, double>{{0, 64}, {5, 32}})) << "q k^T and p v, of 8 columns";
  EXPECT_EQ(work.weights, 0);
}

}  // namespace
}  // namespace temper::rule_facts_test
