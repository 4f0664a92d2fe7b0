// What ScheduleCollectives promises of a block's backward on tensor ranks: products that nothing waits for stand behind
// the collectives that are under way.
#include <gtest/gtest.h>

#include "../tiny_run.h"
#include "compile/collectives.h"
#include "compile/differentiate.h"
#include "compile/fuse.h"

namespace temper::tiny {
namespace {

// Wide enough that products of a block hide what tensor ranks exchange.
const std::string& Wide() {
  static const std::string config = LlamaConfigText(/*tied=*/false, /*hidden=*/256, /*blocks=*/2);
  return config;
}

// The first micro-batch of a rank.
Graph StepOf(const MeshSpec& spec, bool lora, bool overlap) {
  Graph forward = MakeModel(Wide())->Forward({.tokens = 96, .row = 4, .training = lora});
  if (lora) {
    const LoraSpec adapters{.r = 4, .alpha = 8};
    forward = AddLora(forward, Must(ResolveLoraTargets(forward, adapters)), /*dropout=*/0.1);
  } else {
    TrainAllWeights(&forward);
  }
  Graph local = Must(PartitionByRules(forward, {.mesh = spec.mesh, .residual = spec.residual},
                                      WithDefaults(spec.rules, spec.residual)));
  return ScheduleCollectives(Differentiate(Fuse(std::move(local)), /*accumulate=*/false), {.background = overlap});
}

struct Hidden {
  int collectives = 0, hidden = 0;  // of activations, in the backward of block 0
  std::vector<int> products;        // dW behind each hidden one, until something needs what it gives
};
Hidden LookAt(const Graph& graph) {
  Hidden found;
  const auto& nodes = graph.nodes();
  const WeightMoves weights = FindWeightMoves(graph);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    if (!IsCollective(node.op) || weights.gathers[i] || weights.reduces[i]) continue;
    const bool soon = node.attributes.Flag("soon");
    EXPECT_EQ(soon, node.attributes.Flag("background")) << ToString(node.op);
    EXPECT_TRUE(node.phase == Phase::kBackward || !soon) << "in the forward all that follows waits";
    if (node.phase != Phase::kBackward || node.block != 0) continue;
    ++found.collectives;
    if (!soon) continue;
    ++found.hidden;
    int products = 0;
    const auto takes = [&](const Node& n) {
      return std::find(n.inputs.begin(), n.inputs.end(), node.outputs[0]) != n.inputs.end();
    };
    for (size_t k = i + 1; k < nodes.size() && !takes(nodes[k]); ++k) products += nodes[k].op == Op::kLinearDw;
    found.products.push_back(products);
  }
  return found;
}

MeshSpec TensorRanks(ResidualSplit residual, int fsdp) {
  MeshSpec spec{.residual = residual};
  spec.mesh.set_size(Axis::kTp, 2);
  spec.mesh.set_size(Axis::kFsdp, fsdp);
  return spec;
}

TEST(Overlap, CollectivesOfABlocksBackwardHideBehindItsWeightsGradients) {
  for (const ResidualSplit residual : {ResidualSplit::kTokens, ResidualSplit::kWhole}) {
    for (const int fsdp : {1, 2}) {
      const Graph graph = StepOf(TensorRanks(residual, fsdp), /*lora=*/false, /*overlap=*/true);
      ASSERT_TRUE(Verify(graph).ok());
      const Hidden found = LookAt(graph);
      // Sums of gradients of activations, two in a block; where tokens are split it gathers gradients, too: the first
      // one stands at the end of the block before, and that of what comes before the blocks at the end of this one.
      EXPECT_EQ(found.collectives, residual == ResidualSplit::kTokens ? 4 : 2);
      EXPECT_EQ(found.hidden, found.collectives);
      for (const int products : found.products) EXPECT_GE(products, 1);
    }
  }
}

TEST(Overlap, IsNotTriedWhereThereIsTooLittleToHideBehind) {
  const Graph lora = StepOf(TensorRanks(ResidualSplit::kTokens, 1), /*lora=*/true, /*overlap=*/true);
  EXPECT_EQ(LookAt(lora).hidden, 0) << "the gradients of adapters take no time";
}

TEST(Overlap, IsNotTriedWhereItIsSwitchedOff) {
  const Graph in_line = StepOf(TensorRanks(ResidualSplit::kTokens, 1), /*lora=*/false, /*overlap=*/false);
  EXPECT_EQ(LookAt(in_line).hidden, 0);
}

}  // namespace
}  // namespace temper::tiny
