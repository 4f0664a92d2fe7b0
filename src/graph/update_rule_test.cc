// Every optimizer of the table keeps what graph/update_rule.h promises of all.
#include "graph/update_rule.h"
#include "graph/named_ops.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

#include "graph/builder.h"
#include "graph/rule.h"

namespace temper::update_rule_test {
namespace {

struct Case {
  const UpdateRule* rule;
  Attributes settings;
  std::vector<std::string> states;  // of weight W
};

std::vector<Case> Cases() {
  return {{UpdateRuleOf(Op::kAdamw), UpdateSettings(Op::kAdamw), {"adam_m:W", "adam_v:W"}},
          {UpdateRuleOf(Op::kSgd), UpdateSettings(Op::kSgd), {"sgd_momentum:W"}},
          {UpdateRuleOf(Op::kSgd), UpdateSettings(Op::kSgd, {{"nesterov", 1}}), {"sgd_momentum:W"}},
          {UpdateRuleOf(Op::kSgd), UpdateSettings(Op::kSgd, {{"momentum", 0}}), {}},
          {UpdateRuleOf(Op::kLion), UpdateSettings(Op::kLion), {"lion_m:W"}},
          {UpdateRuleOf(Op::kAdamw8bit), UpdateSettings(Op::kAdamw8bit), {"adam8_m:W", "adam8_v:W"}},
          {UpdateRuleOf(Op::kMuon), UpdateSettings(Op::kMuon), {"muon_m:W"}},
          {UpdateRuleOf(Op::kAdafactor),
           UpdateRuleOf(Op::kAdafactor)->SettingsFor(UpdateSettings(Op::kAdafactor), {4, 6}),
           {"adafactor_row:W", "adafactor_column:W"}}};
}

TEST(UpdateRule, OperandsOverwritesAndStatesAreWhereAllExpectThem) {
  std::set<const UpdateRule*> seen;
  for (const Case& c : Cases()) {
    for (const bool weight : {false, true}) {
      SCOPED_TRACE(std::string(c.rule->name) + c.settings.ToString());
      seen.insert(c.rule);
      Graph graph;
      GraphBuilder build(&graph);
      const TensorType type{DType::kF32, {4, 6}};
      std::vector<ValueId> inputs = {build.Source("master:W", type, Role::kOptimizerState),
                                     build.Source("grad:W", type, Role::kGradient)};
      std::vector<std::string> states;
      for (const UpdateState* state : c.rule->StatesOf(c.settings)) {
        states.push_back(state->NameOf("W"));
        inputs.push_back(build.Source(states.back(), state->TypeOf(type.shape), Role::kOptimizerState));
      }
      EXPECT_EQ(states, c.states);
      inputs.push_back(build.Source("clip", {DType::kF32, {2}}, Role::kInput));
      inputs.push_back(build.Source("scalars", {DType::kF64, {kNumScalars}}, Role::kInput));
      Attributes attributes = c.settings;
      attributes.Set("weight_decay", 0.1);
      attributes.Set("weight", int64_t{weight});
      if (weight) attributes.Set("dtype", "bf16");
      const auto outputs = build.Add(c.rule->op, inputs, attributes, "updated");
      const UpdateOperands operands(graph.nodes().back());
      EXPECT_EQ(operands.tensors(), 2 + states.size());
      EXPECT_EQ(operands.replacing(), 1 + states.size());
      EXPECT_EQ(outputs.size(), operands.replacing() + weight);
      EXPECT_EQ(operands.home(), states.empty() ? UpdateOperands::kMaster : UpdateOperands::kFirstState);
      for (size_t k = 0; k < outputs.size(); ++k) {
        const int over =
            OverwritableInput(c.rule->op, attributes, static_cast<int>(inputs.size()), static_cast<int>(k));
        const bool replaces = k < operands.replacing();
        EXPECT_EQ(over, replaces ? static_cast<int>(UpdateOperands::Replaced(k)) : -1);
        const Value& value = graph.value(outputs[k]);
        EXPECT_EQ(value.type, replaces ? graph.value(inputs[static_cast<size_t>(over)]).type
                                       : (TensorType{DType::kBF16, type.shape}));
      }
    }
  }
  EXPECT_EQ(seen.size(), UpdateRules().size()) << "an optimizer has no case here";
}

TEST(UpdateRule, IsFoundByItsOp) {
  for (const UpdateRule* rule : UpdateRules()) {
    EXPECT_EQ(UpdateRuleOf(rule->op), rule);
  }
  EXPECT_EQ(UpdateRuleOf(Op::kSumSquares), nullptr);
}

TEST(UpdateRule, NoTwoHaveAStateOfOneName) {
  std::set<std::string_view> names;
  for (const UpdateState* state : UpdateStates()) EXPECT_TRUE(names.insert(state->name).second) << state->name;
}

TEST(UpdateRule, AdafactorKeepsRowsAndColumnsOfMatricesAndVectorsWhole) {
  const UpdateRule& rule = *UpdateRuleOf(Op::kAdafactor);
  const auto states = [&](const Shape& shape) {
    std::string text;
    for (const UpdateState* state : rule.StatesOf(rule.SettingsFor(rule.Settings(), shape))) {
      text += state->NameOf("W") + state->TypeOf(shape).ToString() + " ";
    }
    return text;
  };
  EXPECT_EQ(states({4, 6}), "adafactor_row:Wf32[4] adafactor_column:Wf32[6] ");
  EXPECT_EQ(states({3, 4, 6}), "adafactor_row:Wf32[3, 4] adafactor_column:Wf32[3, 6] ");
  EXPECT_EQ(states({6}), "adafactor_v:Wf32[6] ");
}

TEST(UpdateRule, TheAverageIsNoRunsOptimizer) {
  ASSERT_NE(UpdateRuleOf(Op::kAverage), nullptr);
  for (const UpdateRule* rule : UpdateRules()) EXPECT_FALSE(rule->averages) << rule->name;
}

TEST(UpdateRule, AdamwFillsInItsBiasCorrectionsAndNothingElse) {
  std::array<double, kNumScalars> scalars = {1, 2, 3, 4};
  UpdateRuleOf(Op::kAdamw)->fill_scalars(UpdateSettings(Op::kAdamw, {{"beta1", 0.8}, {"beta2", 0.95}}), 3, scalars);
  EXPECT_EQ(scalars, (std::array<double, kNumScalars>{1, 1 - std::pow(0.8, 3.0), 1 - std::pow(0.95, 3.0), 4}));
}

TEST(UpdateRule, SgdRefusesABufferWithoutMomentumAndNesterovWithout) {
  const TensorType f32{DType::kF32, {3}}, clip{DType::kF32, {2}}, scalars{DType::kF64, {kNumScalars}};
  Attributes attributes = UpdateSettings(Op::kSgd, {{"momentum", 0}});
  attributes.Set("weight_decay", 0.0);
  EXPECT_TRUE(InferTypes(Op::kSgd, {f32, f32, clip, scalars}, attributes).ok());
  EXPECT_FALSE(InferTypes(Op::kSgd, {f32, f32, f32, clip, scalars}, attributes).ok());
  attributes.Set("nesterov", int64_t{1});
  EXPECT_FALSE(InferTypes(Op::kSgd, {f32, f32, clip, scalars}, attributes).ok());
  attributes.Set("nesterov", int64_t{0});
  attributes.Set("buffer", int64_t{1});
  EXPECT_FALSE(InferTypes(Op::kSgd, {f32, f32, f32, clip, scalars}, attributes).ok());
}

}  // namespace
}  // namespace temper::update_rule_test
