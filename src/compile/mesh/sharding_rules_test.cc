#include "compile/mesh/sharding_rules.h"

#include <gtest/gtest.h>

#include "graph/builder.h"

namespace temper {
namespace {

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// A matrix, a vector, a scalar: "a.weight", "b.bias", "c.scale".
Graph Tensors() {
  Graph graph;
  for (const auto& [name, shape] :
       {std::pair<std::string, Shape>{"a.weight", {8, 6}}, {"b.bias", {8}}, {"c.one", {1}}}) {
    graph.AddValue({.name = name, .type = {DType::kF32, shape}, .role = Role::kWeight});
  }
  return graph;
}

Mesh Fsdp2Tp2() {
  Mesh mesh;
  mesh.set_size(Axis::kFsdp, 2);
  mesh.set_size(Axis::kTp, 2);
  return mesh;
}

std::string ShardingOf(const std::string& name, std::vector<ShardingRule> rules) {
  const auto placed = ShardWeights(Tensors(), Fsdp2Tp2(), rules);
  TEMPER_CHECK(placed.ok()) << placed.status().message();
  return placed->shardings.at(name).ToString(name == "a.weight" ? 2 : 1);
}
std::string ErrorOf(std::vector<ShardingRule> rules) {
  const auto placed = ShardWeights(Tensors(), Fsdp2Tp2(), rules);
  return placed.ok() ? "" : placed.status().message();
}

TEST(ShardingRules, TheFirstWhosePatternIsFoundDecides) {
  const std::vector<ShardingRule> rules = {{"^a", "tp,fsdp"}, {"weight", "fsdp,tp"}, {".", "replicate"}};
  EXPECT_EQ(ShardingOf("a.weight", rules), "tp,fsdp");
  EXPECT_EQ(ShardingOf("b.bias", rules), "-");
  const auto placed = ShardWeights(Tensors(), Fsdp2Tp2(), rules);
  EXPECT_EQ(placed->rule_of.at("a.weight"), 0u);
  EXPECT_EQ(placed->rule_of.at("b.bias"), 2u);
}

TEST(ShardingRules, ASpecNamesForEachDimItsAxesFromTheOutside) {
  const auto of = [](const char* spec) { return ShardingOf("a.weight", {{"weight", spec}, {".", "replicate"}}); };
  EXPECT_EQ(of("fsdp+tp,-"), "fsdp+tp,-");
  EXPECT_EQ(of("tp+fsdp,-"), "tp+fsdp,-");
  EXPECT_EQ(of("-,tp"), "-,tp");
  EXPECT_EQ(of("kv,fsdp"), "tp,fsdp");
  EXPECT_EQ(of("replicate"), "-,-");
  EXPECT_EQ(of("dp+fsdp,-"), "fsdp,-") << "axes of one rank vanish";
}

TEST(ShardingRules, AreTheUsersBeforeTheDefaultOnes) {
  const std::vector<ShardingRule> given = {{"lm_head", "fsdp,tp"}};
  const auto rules = WithDefaults(given, ResidualSplit::kTokens);
  const auto defaults = DefaultShardingRules(ResidualSplit::kTokens);
  ASSERT_EQ(rules.size(), defaults.size() + 1);
  EXPECT_TRUE(rules[0].given);
  EXPECT_FALSE(rules[1].given);
  EXPECT_EQ(rules[1].pattern, defaults[0].pattern);
  EXPECT_EQ(NameOfRule(rules, 0), "placement rule 1 ['lm_head', 'fsdp,tp']");
}

TEST(ShardingRules, ErrorsNameTheRuleByItsNumberAndText) {
  const auto error_of = [](const char* spec) { return ErrorOf({{"zzz", "-"}, {"weight", spec, true}, {".", "-"}}); };
  const std::string rule = "placement rule 2 ['weight', '";
  EXPECT_HAS(error_of("fsdb,-"),
             rule + "fsdb,-']: 'fsdb' is no axis that weights are split over; the nearest is 'fsdp'");
  EXPECT_HAS(error_of("dept,-"), "the nearest is 'depth'");
  EXPECT_HAS(error_of("pp,-"), "'pp' is no axis");
  EXPECT_HAS(error_of("fsdp,fsdp"), rule + "fsdp,fsdp']: the spec names fsdp twice");
  EXPECT_HAS(error_of("tp,kv"), "the spec names tp twice");
  EXPECT_HAS(error_of("fsdp"),
             rule + "fsdp']: the spec has 1 dim, but a.weight is f32[8, 6]: write 2, such as 'fsdp,-'");
  EXPECT_HAS(error_of("-,-,-"), "the spec has 3 dims");
  EXPECT_HAS(error_of(""), rule);
  EXPECT_HAS(error_of("fsdp+,-"), "'' is no axis");
  EXPECT_HAS(ErrorOf({{"weight", "-,-"}, {"matches nothing", "fsdb,-"}}),
             "default placement rule 2 ['matches nothing', 'fsdb,-']: 'fsdb' is no axis");
  EXPECT_HAS(ErrorOf({{"(", "-"}}), "default placement rule 1 ['(', '-']");
}

TEST(ShardingRules, ATensorThatNoneMatchesIsAnErrorUnlessItHasOneElement) {
  EXPECT_HAS(ErrorOf({{"bias", "-"}}),
             "no placement rule matches a.weight f32[8, 6]: give one, such as placement: "
             "[['a.weight', 'fsdp,-']]");
  EXPECT_EQ(ErrorOf({{"bias", "-"}, {"weight", "-,-"}}), "") << "c.one needs none";
}

// x w^T with w split along its input dim, which x is not.
TEST(ShardingRules, WhatCannotBeComputedNamesTheRulesOfTheUser) {
  Graph graph;
  GraphBuilder build(&graph);
  const ValueId token = build.TokenInput("token", DType::kI32, 8);
  const ValueId table = build.Source("table", {DType::kF32, {5, 6}}, Role::kWeight);
  const ValueId w = build.Source("a.weight", {DType::kF32, {4, 6}}, Role::kWeight);
  build.Linear(build.Embedding(table, token, 0, "x"), w, kNoValue, "y");
  Mesh mesh;
  mesh.set_size(Axis::kTp, 2);
  const std::vector<ShardingRule> rules = {{"table", "-,-"}, {"a", "-,tp", true}};
  const auto part = PartitionByRules(graph, {.mesh = mesh, .residual = ResidualSplit::kWhole}, rules);
  ASSERT_FALSE(part.ok());
  EXPECT_HAS(part.status().message(), "a.weight is split along its input dim over tp");
  EXPECT_HAS(part.status().message(), "what you asked for: placement rule 2 ['a', '-,tp'] places a.weight");
}

}  // namespace
}  // namespace temper
