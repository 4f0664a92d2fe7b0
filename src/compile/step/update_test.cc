#include "compile/step/update.h"

#include <gtest/gtest.h>

#include <map>

#include "graph/builder.h"
#include "graph/named_ops.h"

namespace temper::update_test {
namespace {

// A trained matrix and vector with default decay, and one of each with the opposite setting.
Graph Net(DType dtype) {
  Graph graph;
  GraphBuilder build(&graph);
  const ValueId x = build.Source("x", {dtype, {4, 6}}, Role::kInput);
  const auto weight = [&](const std::string& name, Shape shape) {
    const ValueId id = build.Source(name, {dtype, shape}, Role::kWeight);
    graph.value(id).trainable = true;
    return id;
  };
  const ValueId kept = weight("kept", {6, 6}), scaled = weight("scaled", {6});
  graph.value(kept).decays = false;
  graph.value(scaled).decays = true;
  ValueId y = build.Linear(x, weight("matrix", {6, 6}), weight("vector", {6}), "y");
  y = build.Linear(y, kept, scaled, "z");
  return graph;
}

TEST(BuildUpdate, DecaysValuesMarkedToDecay) {
  for (const UpdateRule* rule : UpdateRules()) {
    UpdateSpec spec{.rule = rule, .weight_decay = 0.1};
    Graph net = Net(DType::kBF16);
    if (const UpdateRule* const others = rule->others()) {
      spec.settings_of_others = others->Settings();
      spec.groups = {{.weight_decay = 0.1, .of_the_others = true}};
      for (const char* vector : {"vector", "scaled"}) net.value(net.FindSource(vector)).update_group = 1;
    }
    const Graph update = BuildUpdate(net, spec, Mesh());
    ASSERT_TRUE(Verify(update).ok()) << Verify(update).message();
    std::map<std::string, double> decay;
    for (const Node& n : update.nodes()) {
      if (UpdateRuleOf(n.op) != nullptr) decay[update.value(n.inputs[0]).name] = n.attributes.Double("weight_decay");
    }
    const std::map<std::string, double> expected = {
        {"master:matrix", 0.1}, {"master:vector", 0}, {"master:kept", 0}, {"master:scaled", 0.1}};
    EXPECT_EQ(decay, expected) << rule->name;
  }
}

TEST(BuildUpdate, GroupsHaveRatesAndDecaysOfTheirOwn) {
  Graph net = Net(DType::kBF16);
  net.value(net.FindSource("matrix")).update_group = 2;
  net.value(net.FindSource("vector")).update_group = 1;
  const UpdateSpec spec{.weight_decay = 0.1, .groups = {{.lr_factor = 4}, {.lr_factor = 0.5, .weight_decay = 0.3}}};
  std::map<std::string, std::pair<double, double>> found;
  const Graph update = BuildUpdate(net, spec, Mesh());
  ASSERT_TRUE(Verify(update).ok()) << Verify(update).message();
  for (const Node& n : update.nodes()) {
    if (n.op != Op::kAdamw) continue;
    EXPECT_EQ(n.attributes.Has("lr_factor"), n.attributes.DoubleOr("lr_factor", 1) != 1);
    found[update.value(n.inputs[0]).name] = {n.attributes.DoubleOr("lr_factor", 1),
                                             n.attributes.Double("weight_decay")};
  }
  const std::map<std::string, std::pair<double, double>> expected = {
      {"master:matrix", {0.5, 0.3}}, {"master:vector", {4, 0}}, {"master:kept", {1, 0}}, {"master:scaled", {1, 0.1}}};
  EXPECT_EQ(found, expected);
}

TEST(BuildUpdate, RoundingStochasticallyKeepsNoMasters) {
  for (const UpdateRule* rule : UpdateRules()) {
    UpdateSpec spec{.rule = rule, .stochastic_rounding = true};
    Graph net = Net(DType::kBF16);
    if (const UpdateRule* const others = rule->others()) {
      spec.settings_of_others = others->Settings();
      spec.groups = {{.of_the_others = true}};
      for (const char* vector : {"vector", "scaled"}) net.value(net.FindSource(vector)).update_group = 1;
    }
    const Graph update = BuildUpdate(net, spec, Mesh());
    ASSERT_TRUE(Verify(update).ok()) << Verify(update).message();
    std::map<std::string, int> rounded;
    for (const Node& n : update.nodes()) {
      if (n.op == Op::kStochasticRound) ++rounded[update.value(update.Root(n.outputs[0])).name];
    }
    const std::map<std::string, int> expected = {{"kept", 1}, {"matrix", 1}, {"scaled", 1}, {"vector", 1}};
    EXPECT_EQ(rounded, expected) << rule->name;
    EXPECT_EQ(update.FindSource("master:matrix"), kNoValue);
  }
}

std::vector<std::string> StatesOf(const Graph& update) {
  std::vector<std::string> names;
  for (ValueId id = 0; id < update.num_values(); ++id) {
    const Value& value = update.value(id);
    if (value.role == Role::kOptimizerState && value.name.ends_with(":matrix")) names.push_back(value.name);
  }
  return names;
}

TEST(BuildUpdate, KeepsTheStatesOfItsOptimizerAndNoOthers) {
  const auto states = [](DType dtype, const UpdateRule& rule, Attributes settings) {
    return StatesOf(BuildUpdate(Net(dtype), {.rule = &rule, .settings = std::move(settings)}, Mesh()));
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(states(DType::kBF16, *UpdateRuleOf(Op::kAdamw), UpdateSettings(Op::kAdamw)),
            (Names{"master:matrix", "adam_m:matrix", "adam_v:matrix"}));
  EXPECT_EQ(states(DType::kF32, *UpdateRuleOf(Op::kAdamw), UpdateSettings(Op::kAdamw)),
            (Names{"adam_m:matrix", "adam_v:matrix"}));
  EXPECT_EQ(states(DType::kBF16, *UpdateRuleOf(Op::kSgd), UpdateSettings(Op::kSgd)),
            (Names{"master:matrix", "sgd_momentum:matrix"}));
  EXPECT_EQ(states(DType::kF32, *UpdateRuleOf(Op::kSgd), UpdateSettings(Op::kSgd, {{"momentum", 0}})), Names());
}

// A part of a weight has the blocks of its elements, which lie among those of the whole as it does.
TEST(BuildUpdate, StatesInBlocksAreSplitAsTheirWeightIs) {
  Graph net;
  GraphBuilder build(&net);
  const ValueId w = build.Source("matrix", {DType::kF32, {32, 512}}, Role::kWeight);
  net.value(w).trainable = true;
  net.value(w).shard = Shard{.global = {64, 1024}, .begin = {32, 512}, .split = Axis::kFsdp};
  build.Linear(build.Source("x", {DType::kF32, {4, 512}}, Role::kInput), w, kNoValue, "y");
  Mesh mesh;
  mesh.set_size(Axis::kFsdp, 4);
  const Graph update = BuildUpdate(net, {.rule = UpdateRuleOf(Op::kAdamw8bit)}, mesh);
  ASSERT_TRUE(Verify(update).ok()) << Verify(update).message();
  const Value& state = update.value(update.FindSource("adam8_v:matrix"));
  EXPECT_EQ(state.type.ToString(), "u8[32, 520]");
  EXPECT_EQ(state.shard->global.ToString(), "[64, 1040]");
  EXPECT_EQ(state.shard->begin.ToString(), "[32, 520]");
  EXPECT_EQ(state.type.bytes(), Bytes{32 * 512 / 256 * 260});
}

}  // namespace
}  // namespace temper::update_test
