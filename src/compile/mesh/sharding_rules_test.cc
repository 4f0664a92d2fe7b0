#include "compile/mesh/sharding_rules.h"

#include <gtest/gtest.h>

#include "graph/builder.h"

namespace temper::sharding_rules_test {
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
  const auto sharded = ShardWeights(Tensors(), Fsdp2Tp2(), rules, ResidualSplit::kTokens);
  TEMPER_CHECK(sharded.ok()) << sharded.status().message();
  return sharded->shardings.at(name).ToString(name == "a.weight" ? 2 : 1);
}
std::string ErrorOf(std::vector<ShardingRule> rules) {
  const auto sharded = ShardWeights(Tensors(), Fsdp2Tp2(), rules, ResidualSplit::kTokens);
  return sharded.ok() ? "" : sharded.status().message();
}

TEST(ShardingRules, TheFirstMatchingPatternDecides) {
  const std::vector<ShardingRule> rules = {{"^a", "tp,fsdp"}, {"weight", "fsdp,tp"}, {".", "replicate"}};
  EXPECT_EQ(ShardingOf("a.weight", rules), "tp,fsdp");
  EXPECT_EQ(ShardingOf("b.bias", rules), "-");
  const auto sharded = ShardWeights(Tensors(), Fsdp2Tp2(), rules, ResidualSplit::kTokens);
  EXPECT_EQ(sharded->rule_of.at("a.weight"), 0u);
  EXPECT_EQ(sharded->rule_of.at("b.bias"), 2u);
}

TEST(ShardingRules, ASpecListsTheAxesOfEachDimOutermostFirst) {
  const auto of = [](const char* spec) { return ShardingOf("a.weight", {{"weight", spec}, {".", "replicate"}}); };
  EXPECT_EQ(of("fsdp+tp,-"), "fsdp+tp,-");
  EXPECT_EQ(of("tp+fsdp,-"), "tp+fsdp,-");
  EXPECT_EQ(of("-,tp"), "-,tp");
  EXPECT_EQ(of("kv,fsdp"), "tp,fsdp");
  EXPECT_EQ(of("replicate"), "-,-");
  EXPECT_EQ(of("dp+fsdp,-"), "fsdp,-") << "axes of one rank are ignored";
}

TEST(ShardingRules, LabelsDecideForTensorsWithoutUserRules) {
  using enum DimLabel;
  const auto spec = [](DimLabels labels) { return SpecOfLabels(labels, ResidualSplit::kTokens).value_or("none"); };
  EXPECT_EQ(spec({kHeads, kHidden}), "tp+fsdp+cp+ep,-");
  EXPECT_EQ(spec({kKvHeads, kHidden}), "kv+fsdp+cp+ep,-");
  EXPECT_EQ(spec({kHidden, kFfn}), "fsdp+cp+ep,tp");
  EXPECT_EQ(spec({kVocab, kHidden}), "tp+fsdp+cp+ep,-");
  EXPECT_EQ(spec({kFfn, kRank}), "tp+fsdp+cp+ep,-") << "LoRA's B";
  EXPECT_EQ(spec({kRank, kFfn}), "fsdp+cp+ep,tp") << "LoRA's A of a split input";
  EXPECT_EQ(spec({kNorm}), "fsdp+cp+ep");
  EXPECT_EQ(spec({kKvHeads}), "kv+fsdp+cp+ep") << "a bias";
  EXPECT_EQ(spec({kExperts, kFfn, kHidden}), "ep+fsdp+cp,tp,-");
  EXPECT_EQ(spec({kExperts, kHidden, kFfn}), "ep+fsdp+cp,-,tp");
  EXPECT_EQ(spec({}), "none");
  const auto in_2d = [](DimLabels labels) { return SpecOfLabels(labels, ResidualSplit::kHidden).value_or("none"); };
  EXPECT_EQ(in_2d({kHidden, kFfn}), "tp+fsdp+cp+ep,row");
  EXPECT_EQ(in_2d({kKvHeads, kHidden}), "kv+fsdp+cp+ep,row");
  EXPECT_EQ(in_2d({kRank, kFfn}), "fsdp+cp+ep,-") << "r is never split";
  EXPECT_EQ(SpecOfLabels({kKvHeads, kHidden}, ResidualSplit::kHidden, /*whole_rows=*/true), "kv+row+fsdp+cp+ep,-");
  EXPECT_EQ(SpecOfLabels({kHidden, kFfn}, ResidualSplit::kTokens, /*whole_rows=*/true), "fsdp+cp+ep,tp")
      << "1-D keeps parts of columns, and gathers none";
  EXPECT_EQ(in_2d({kKvHeads, kRank}), "kv+fsdp+cp+ep,-");
  EXPECT_EQ(in_2d({kHidden}), "tp+fsdp+cp+ep") << "a bias";
  EXPECT_EQ(in_2d({kNorm}), "fsdp+cp+ep");
  EXPECT_EQ(in_2d({kExperts, kFfn, kHidden}), "ep+fsdp+cp,tp,row");

  Graph graph = Tensors();
  graph.value(0).labels = {kFfn, kHidden};
  graph.value(1).labels = {kFfn};
  const std::vector<ShardingRule> given = {{"bias", "fsdp"}};
  const auto sharded = ShardWeights(graph, Fsdp2Tp2(), given, ResidualSplit::kTokens);
  ASSERT_TRUE(sharded.ok()) << sharded.status().message();
  EXPECT_EQ(sharded->shardings.at("a.weight").ToString(2), "tp+fsdp,-");
  EXPECT_EQ(sharded->shardings.at("b.bias").ToString(1), "fsdp") << "the user's comes first";
  EXPECT_EQ(sharded->rule_of.count("a.weight"), 0u);
  EXPECT_EQ(sharded->rule_of.at("b.bias"), 0u);
}

TEST(ShardingRules, ErrorsNameTheRuleByItsNumberAndText) {
  const auto error_of = [](const char* spec) { return ErrorOf({{"zzz", "-"}, {"weight", spec}, {".", "-"}}); };
  const std::string rule = "sharding rule 2 ['weight', '";
  EXPECT_HAS(error_of("fsdb,-"),
             rule + "fsdb,-']: 'fsdb' is not an axis that weights can be split over; the closest is 'fsdp'");
  EXPECT_HAS(error_of("dept,-"), "the closest is 'depth'");
  EXPECT_HAS(error_of("pp,-"), "'pp' is not an axis");
  EXPECT_HAS(error_of("fsdp,fsdp"), rule + "fsdp,fsdp']: the spec names fsdp twice");
  EXPECT_HAS(error_of("tp,kv"), "the spec names tp twice");
  EXPECT_HAS(error_of("fsdp"),
             rule + "fsdp']: the spec has 1 dim, but a.weight is f32[8, 6]: write 2, such as 'fsdp,-'");
  EXPECT_HAS(error_of("-,-,-"), "the spec has 3 dims");
  EXPECT_HAS(error_of(""), rule);
  EXPECT_HAS(error_of("fsdp+,-"), "'' is not an axis");
  EXPECT_HAS(ErrorOf({{"weight", "-,-"}, {"matches nothing", "fsdb,-"}}),
             "sharding rule 2 ['matches nothing', 'fsdb,-']: 'fsdb' is not an axis");
  EXPECT_HAS(ErrorOf({{"(", "-"}}), "sharding rule 1 ['(', '-']");
}

TEST(ShardingRules, ATensorThatNoneMatchesIsAnErrorUnlessItHasOneElement) {
  EXPECT_HAS(ErrorOf({{"bias", "-"}}),
             "no sharding rule matches a.weight f32[8, 6]: give one, such as mesh.sharding: "
             "[['a.weight', 'fsdp,-']]");
  EXPECT_EQ(ErrorOf({{"bias", "-"}, {"weight", "-,-"}}), "") << "c.one needs none";
}

// x w^T with w split along its input dim, which x is not.
TEST(ShardingRules, ErrorsOfPartitionNameTheUsersRules) {
  Graph graph;
  GraphBuilder build(&graph);
  const ValueId token = build.TokenInput("token", DType::kI32, 8);
  const ValueId table = build.Source("table", {DType::kF32, {5, 6}}, Role::kWeight);
  const ValueId w = build.Source("a.weight", {DType::kF32, {4, 6}}, Role::kWeight);
  build.Linear(build.Embedding(table, token, 0, "x"), w, kNoValue, "y");
  Mesh mesh;
  mesh.set_size(Axis::kTp, 2);
  const std::vector<ShardingRule> rules = {{"table", "-,-"}, {"a", "-,tp"}};
  const auto part = PartitionByRules(graph, {.mesh = mesh, .residual = ResidualSplit::kWhole}, rules);
  ASSERT_FALSE(part.ok());
  EXPECT_HAS(part.status().message(), "a.weight is split along its input dim over tp");
  EXPECT_HAS(part.status().message(), "sharding rule 2 ['a', '-,tp'] shards a.weight");
}

}  // namespace
}  // namespace temper::sharding_rules_test
