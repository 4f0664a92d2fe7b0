#include "compile/placement_search.h"

#include <gtest/gtest.h>

#include "compile/differentiate.h"
#include "compile/fuse.h"
#include "compile/place.h"
#include "graph/builder.h"

namespace temper {
namespace {

// The loss of relu(x w), with w trained.
Graph Net() {
  constexpr int64_t T = 64, D = 32, V = 48;
  Graph graph;
  GraphBuilder build(&graph);
  const ValueId token = build.Source("token", {DType::kI32, {T}}, Role::kInput);
  const ValueId target = build.Source("target", {DType::kI32, {T}}, Role::kInput);
  const ValueId table = build.Source("table", {DType::kF32, {V, D}}, Role::kWeight);
  const ValueId w = build.Source("w", {DType::kF32, {D, D}}, Role::kWeight);
  graph.value(w).trainable = true;
  const ValueId x = build.Embedding(table, token, 0, "x");
  const ValueId h = build.Add(Op::kRelu, {build.Linear(x, w, kNoValue, "y")}, {}, "relu")[0];
  build.Add(Op::kLinearCrossEntropy, {h, table, target}, {}, "loss", Role::kOutput);
  return graph;
}

bool AllOnDevice(const Graph& graph, const MemorySpec& memory) {
  const std::vector<PipelinePart> whole;
  const GraphPlacer place = [](const std::vector<PartedGraph>& placed) -> Result<std::vector<Program>> {
    const Graph ready = UpdateInPlace(*placed[0].graph);
    return Place(std::vector<ProgramPlan>{{.name = "net", .stages = {{&ready, 0, 1}}}}, 1);
  };
  const auto found = SearchPlacement(memory, {{{&graph, &whole}, 1}}, 1, place, Effort::kOne, "");
  TEMPER_CHECK(found.ok()) << found.status().message();
  return found->all_on_device;
}

TEST(SearchPlacement, OptionsAboutWhatNoGraphHasMoveNothing) {
  const Graph forward = Fuse(Net()), step = Differentiate(forward, false);
  EXPECT_TRUE(AllOnDevice(forward, {.optimizer = Tier::kDisk}));
  EXPECT_TRUE(AllOnDevice(forward, {.gradients = Tier::kHost, .activations = Tier::kHost}));
  EXPECT_FALSE(AllOnDevice(forward, {.weights = Tier::kHost}));
  EXPECT_TRUE(AllOnDevice(step, {.optimizer = Tier::kDisk}));
  EXPECT_FALSE(AllOnDevice(step, {.gradients = Tier::kHost}));
  EXPECT_FALSE(AllOnDevice(step, {.activations = Tier::kHost}));
}

}  // namespace
}  // namespace temper
