#include "compile/residency/residency.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "compile/step/differentiate.h"
#include "compile/step/fuse.h"
#include "graph/builder.h"
#include "graph/named_ops.h"

namespace temper::residency_test {
namespace {

constexpr int64_t kTokens = 64, kWide = 256;
constexpr int kLayers = 4;

// Layers of one trained product each, and their backward.
Graph Layers() {
  Graph graph;
  GraphBuilder build(&graph);
  const ValueId token = build.TokenInput("token", DType::kI32, kTokens);
  const ValueId target = build.TokenInput("target", DType::kI32, kTokens);
  const TensorType square{DType::kF32, {kWide, kWide}};
  const auto weight = [&](const std::string& name) {
    const ValueId id = build.Source(name, square, Role::kWeight);
    graph.value(id).trainable = true;
    return id;
  };
  ValueId x = build.Add(Op::kEmbedding, {weight("embedding"), token}, {}, "x")[0];
  for (int layer = 0; layer < kLayers; ++layer) {
    build.EnterBlock(layer, "", Phase::kForward);
    x = build.Add(Op::kLinear, {x, weight("w" + std::to_string(layer))}, {}, "y" + std::to_string(layer))[0];
  }
  build.EnterBlock(kBlockAfter, "", Phase::kForward);
  build.Add(Op::kLinearCrossEntropy, {x, weight("head"), target}, {}, "loss", Role::kOutput);
  return graph;
}

int Count(const Graph& graph, Op op) {
  return static_cast<int>(
      std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const Node& n) { return n.op == op; }));
}

class ResidencyTest : public testing::Test {
 protected:
  ResidencySpec Spec(const Homes& homes, Bytes device) const {
    return {.homes = &homes,
            .device = device,
            .host = GiB(1),
            .rates = &rates_,
            .links = {.host_to_device = 1e9, .device_to_host = 1e9, .disk_read = 1e8, .disk_write = 1e8},
            .threads = 1};
  }
  const DeviceRates rates_ = TypicalHost();
};

TEST_F(ResidencyTest, KeepsAGraphWithEverythingAtHome) {
  const Graph step = Differentiate(Layers(), false);
  const Homes homes;
  const Graph resided = Reside(step, {}, Spec(homes, GiB(1))).graph;
  EXPECT_EQ(PrintGraph(resided), PrintGraph(step));
}

TEST_F(ResidencyTest, FetchesAWeightForEachPassIfThereIsNoRoomToKeepIt) {
  const Graph step = Differentiate(Layers(), false);
  Homes homes;
  for (int layer = 0; layer < kLayers; ++layer) homes["w" + std::to_string(layer)] = Tier::kHost;
  const ResidencySpec least = Spec(homes, GiB(1));
  const Bytes few = LeastOnDevice(step, {}, least, CostsOfNodes(step, &rates_, 1)).bytes;
  const Graph tight = Reside(step, {}, Spec(homes, few)).graph;
  ASSERT_TRUE(Verify(tight).ok()) << Verify(tight).message();
  // One per layer for forward and backward; the last layer's copy may serve both, if it fits.
  EXPECT_GE(Count(tight, Op::kFetch), 2 * kLayers - 1);
  EXPECT_EQ(Count(tight, Op::kEvict), 0) << "a weight that is only read has nothing to write back";
  const Graph roomy = Reside(step, {}, Spec(homes, GiB(1))).graph;
  EXPECT_EQ(Count(roomy, Op::kFetch), kLayers) << "weights that fit are kept from forward to backward";
}

TEST_F(ResidencyTest, WritesGradientsToTheirHomeAndAddsToThemFromThere) {
  Homes homes;
  for (int layer = 0; layer < kLayers; ++layer) homes["grad:w" + std::to_string(layer)] = Tier::kHost;
  const Graph first = Reside(Differentiate(Layers(), false), {}, Spec(homes, GiB(1))).graph;
  EXPECT_EQ(Count(first, Op::kFetch), 0);
  EXPECT_EQ(Count(first, Op::kEvict), kLayers);
  const Graph rest = UpdateInPlace(Reside(Differentiate(Layers(), true), {}, Spec(homes, GiB(1))).graph);
  ASSERT_TRUE(Verify(rest).ok()) << Verify(rest).message();
  EXPECT_EQ(Count(rest, Op::kFetch), kLayers);
  EXPECT_EQ(Count(rest, Op::kEvict), kLayers);
  for (const Node& node : rest.nodes()) {
    if (node.op != Op::kEvict) continue;
    EXPECT_EQ(rest.value(node.outputs[0]).tier, Tier::kHost);
    EXPECT_EQ(rest.value(rest.Root(node.outputs[0])).role, Role::kGradient);
  }
}

// With links on which a fetch takes longer than a kernel, and much shorter.
TEST_F(ResidencyTest, IssuesFetchesAheadOfTheirUse) {
  const Graph step = Differentiate(Layers(), false);
  Homes homes;
  for (int layer = 0; layer < kLayers; ++layer) homes["w" + std::to_string(layer)] = Tier::kHost;
  for (const double rate : {1e9, 1e14}) {
    SCOPED_TRACE(rate);
    ResidencySpec spec = Spec(homes, GiB(1));
    spec.links.host_to_device = rate;
    const Graph resided = Reside(step, {}, spec).graph;
    int ahead = 0;
    const auto& nodes = resided.nodes();
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].op != Op::kFetch) continue;
      for (size_t k = i + 1; k < nodes.size(); ++k) {
        const auto& in = nodes[k].inputs;
        if (std::find(in.begin(), in.end(), nodes[i].outputs[0]) == in.end()) continue;
        ahead +=
            std::any_of(nodes.begin() + static_cast<std::ptrdiff_t>(i), nodes.begin() + static_cast<std::ptrdiff_t>(k),
                        [](const Node& n) { return n.op == Op::kLinear; });
        break;
      }
    }
    EXPECT_GE(ahead, kLayers - 1) << "kernels can hide all but the first";
  }
}

// The next fetch in the queue, of a small weight, could wait until after the long kernel. The one behind it cannot.
TEST_F(ResidencyTest, IssuesAFetchThatCanWaitForTheSakeOfTheNext) {
  Graph graph;
  GraphBuilder build(&graph);
  ValueId x = build.TokenInput("x", DType::kF32, kTokens);
  graph.value(x).type.shape = {kTokens, kWide};
  for (const auto& [name, rows, columns] :
       {std::tuple("long", kWide, kWide), {"a", 2L, kWide}, {"b", kWide, 2L}, {"late", kWide, kWide}}) {
    const ValueId w = build.Source(name, {DType::kF32, {rows, columns}}, Role::kWeight);
    x = build.Add(Op::kLinear, {x, w}, {}, "y")[0];
  }
  const Homes homes = {{"b", Tier::kHost}, {"late", Tier::kHost}};
  ResidencySpec spec = Spec(homes, GiB(1));
  spec.links.host_to_device = 4e9;  // `late` takes half as long as the long kernel, and longer than those of a and b
  const Graph resided = Reside(graph, {}, spec).graph;
  ASSERT_EQ(resided.nodes().size(), 6u);
  EXPECT_EQ(resided.nodes()[0].op, Op::kFetch);
  EXPECT_EQ(resided.nodes()[1].op, Op::kFetch) << PrintGraph(resided);
}

}  // namespace
}  // namespace temper::residency_test
