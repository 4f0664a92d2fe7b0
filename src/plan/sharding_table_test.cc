#include "plan/sharding_table.h"

#include <gtest/gtest.h>

#include "graph/builder.h"

namespace temper::sharding_table_test {
namespace {

// Two layers of a matrix and a vector each, and a table.
Graph Weights() {
  Graph graph;
  GraphBuilder build(&graph);
  const ValueId x_TD = build.Source("x", {DType::kBF16, {4, 8}}, Role::kInput);
  for (const int block : {0, 1}) {
    const std::string name = "model.layers." + std::to_string(block) + ".";
    build.EnterBlock(block, name);
    const ValueId up = build.Source(name + "mlp.up_proj.weight", {DType::kBF16, {6, 8}}, Role::kWeight);
    graph.value(up).labels = {DimLabel::kFfn, DimLabel::kHidden};
    const ValueId norm = build.Source(name + "norm.weight", {DType::kBF16, {8}}, Role::kWeight);
    build.Linear(build.RmsNorm(x_TD, norm, 1e-6, "norm"), up, kNoValue, "up");
  }
  graph.value(build.Source("table.weight", {DType::kBF16, {5, 8}}, Role::kWeight)).trainable = true;
  return graph;
}

std::string Draw(const Mesh& mesh, const std::vector<ShardingRule>& rules, const ShardingStyle& style = {},
                 const std::map<std::string, std::vector<int>>& stages = {}) {
  const Graph graph = Weights();
  const auto sharded = ShardWeights(graph, mesh, rules, ResidualSplit::kTokens);
  TEMPER_CHECK(sharded.ok()) << sharded.status().message();
  return DrawSharding(graph, {mesh, rules, ResidualSplit::kTokens}, *sharded, stages, style);
}

Mesh Fsdp2Tp2() {
  Mesh mesh;
  mesh.set_size(Axis::kFsdp, 2);
  mesh.set_size(Axis::kTp, 2);
  return mesh;
}
const std::vector<ShardingRule> kRules = {{"table", "fsdp,-"}, {"norm", "replicate"}, {"up_proj", "fsdp,tp"}};

void ExpectHas(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in\n" << text;
}

TEST(ShardingTable, PlainTextShowsEveryTensorsShapeSpecAndSlices) {
  const std::string text = Draw(Fsdp2Tp2(), kRules);
  ExpectHas(text, "mesh fsdp=2,tp=2: 4 ranks\n");
  ExpectHas(text,
            "\nmodel.layers.*.mlp.up_proj.weight  (layers 0-1)  bf16[6, 8]  fsdp,tp  by rule 3\n"
            "    +------+------+\n"
            "    |  0   |  1   |  rows 0-2\n"
            "    +------+------+\n"
            "    |  2   |  3   |  rows 3-5\n"
            "    +------+------+\n"
            "    columns 0-3 4-7\n");
  ExpectHas(text, "\nmodel.layers.*.norm.weight  (layers 0-1)  bf16[8]  -  by rule 2\n    on every rank\n");
  // Sizes that do not divide are split unevenly, and ranks with the same slice share a cell.
  ExpectHas(text,
            "\ntable.weight  bf16[5, 8]  fsdp,-  by rule 1  trained\n"
            "    +------+\n"
            "    | 0,1  |  rows 0-1\n"
            "    +------+\n"
            "    | 2,3  |  rows 2-4\n"
            "    +------+\n");
  for (const char c : text) EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << static_cast<int>(c);
}

TEST(ShardingTable, ShowsTheBytesOfEachRank) {
  const std::string text = Draw(Fsdp2Tp2(), kRules);
  // Two layers with a quarter of 96 bytes and 16 of the norm each; two or three of the table's rows of 16 bytes.
  ExpectHas(text, "weights and adapters: 304 B in all\n");
  ExpectHas(text, "   rank 0     112 B\n");
  ExpectHas(text, "   rank 1     112 B\n");
  ExpectHas(text, "   rank 2     128 B\n");
  ExpectHas(text, "   rank 3     128 B\n");
}

TEST(ShardingTable, InColourHasTheSameWordsAndAColourForEachRank) {
  const std::string plain = Draw(Fsdp2Tp2(), kRules), rich = Draw(Fsdp2Tp2(), kRules, {.colours = true});
  std::string words;
  std::map<std::string, int> colours;
  for (size_t i = 0; i < rich.size(); ++i) {
    if (rich[i] != '\x1b') {
      words += rich[i];
      continue;
    }
    const size_t end = rich.find('m', i);
    ++colours[rich.substr(i, end - i)];
    i = end;
  }
  EXPECT_EQ(words, plain);
  EXPECT_EQ(colours.size(), 1u + 4u) << "one for each rank, and back";
  ExpectHas(Draw(Fsdp2Tp2(), kRules, {.boxes = true}), "┼");
}

TEST(ShardingTable, NamesTheRanksOfATensorsPipelineStages) {
  Mesh mesh;
  mesh.set_size(Axis::kPp, 2);
  mesh.set_size(Axis::kFsdp, 2);
  const std::string text = Draw(mesh, {{"table", "fsdp,-"}, {".", "replicate"}}, {},
                                {{"model.layers.0.mlp.up_proj.weight", {0}},
                                 {"model.layers.0.norm.weight", {0}},
                                 {"model.layers.1.mlp.up_proj.weight", {1}},
                                 {"model.layers.1.norm.weight", {1}},
                                 {"table.weight", {0, 1}}});
  ExpectHas(text, "model.layers.*.mlp.up_proj.weight  bf16[6, 8]  -,-  by rule 2\n    on ranks 0,1\n");
  ExpectHas(text, "    on ranks 2,3\n");
  ExpectHas(text, "| 0,2  |  rows 0-1\n");
}

TEST(ShardingTable, ShowsTheLabelsThatDecideWithoutRules) {
  const std::string text = Draw(Fsdp2Tp2(), {{"table", "fsdp,-"}, {"norm", "replicate"}});
  ExpectHas(text, "the rest by the labels of their dims\n  ffn,hidden  tp+fsdp+cp+ep,-  decides 2 tensors\n");
  ExpectHas(text, "model.layers.*.mlp.up_proj.weight  (layers 0-1)  bf16[6, 8]  tp+fsdp,-  by ffn,hidden\n");
}

TEST(ShardingTable, CountsTheTensorsOfEachRule) {
  const std::string text = Draw(Fsdp2Tp2(), {{"nothing", "replicate"}, {"table", "fsdp,-"}, {".", "replicate"}});
  ExpectHas(text, "decides nothing");
  ExpectHas(text, "decides 1 tensor\n");
  ExpectHas(text, "decides 4 tensors\n");
}

}  // namespace
}  // namespace temper::sharding_table_test
