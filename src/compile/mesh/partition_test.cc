#include "compile/mesh/partition.h"

#include <gtest/gtest.h>

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "compile/mesh/grad_sync.h"
#include "compile/mesh/verify_sharding.h"
#include "compile/step/differentiate.h"
#include "compile/step/update.h"
#include "graph/builder.h"
#include "graph/named_ops.h"
#include "graph/rule.h"
#include "program/buffer_names.h"

namespace temper::partition_test {
namespace {

constexpr int64_t T = 24, D = 8, F = 10, V = 21;

using Shardings = std::map<std::string, Sharding>;

Sharding Split(std::vector<Axis> rows, std::vector<Axis> columns = {}) {
  Sharding p;
  p.dims[0] = std::move(rows);
  p.dims[1] = std::move(columns);
  return p;
}

Mesh MeshOf(std::initializer_list<std::pair<Axis, int>> sizes) {
  Mesh mesh;
  for (const auto& [axis, size] : sizes) mesh.set_size(axis, size);
  return mesh;
}

// x = table[token]; two blocks of x = x + down relu(up norm(x)); loss over the table.
struct Net {
  Graph graph;
  GraphBuilder build{&graph};
  ValueId token, target, table;

  explicit Net(bool train = true, int64_t tokens = T) {
    token = build.TokenInput("token", DType::kI32, tokens);
    target = build.TokenInput("target", DType::kI32, tokens);
    table = Weight("table", {V, D}, train);
    ValueId x = build.Embedding(table, token, 0, "x");
    for (int block = 0; block < 2; ++block) {
      const std::string p = std::to_string(block) + ".";
      build.EnterBlock(block, p);
      const ValueId h = build.RmsNorm(x, Weight(p + "norm", {D}, train), 1e-5, "h");
      const ValueId gate = build.Linear(h, Weight(p + "gate", {F, D}, train), kNoValue, "gate");
      const ValueId up = build.Linear(h, Weight(p + "up", {F, D}, train), kNoValue, "up");
      const ValueId y = build.Linear(build.Glu(gate, up, "mlp"), Weight(p + "down", {D, F}, train), kNoValue, "y");
      x = build.Sum(x, y, "sum");
    }
    build.EnterBlock(kBlockAfter, "");
    build.Add(Op::kLinearCrossEntropy, {x, table, target}, {}, "loss", Role::kOutput);
  }
  ValueId Weight(const std::string& name, Shape shape, bool train) {
    const ValueId id = build.Source(name, {DType::kF32, shape}, Role::kWeight);
    graph.value(id).trainable = train;
    return id;
  }
};

// Every weight split by fsdp on its rows, by tp as in Megatron.
Shardings DefaultsFor(const Graph& graph, const Mesh& mesh) {
  const auto of = [&](std::vector<Axis> axes) {
    axes.erase(std::remove_if(axes.begin(), axes.end(), [&](Axis a) { return mesh.size(a) == 1; }), axes.end());
    return axes;
  };
  Shardings shardings;
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    const std::string& name = graph.value(id).name;
    if (graph.value(id).role != Role::kWeight) continue;
    const bool by_rows = name == "table" || name.ends_with("gate") || name.ends_with("up");
    shardings[name] = by_rows                  ? Split(of({Axis::kTp, Axis::kFsdp}))
                      : name.ends_with("down") ? Split(of({Axis::kFsdp}), of({Axis::kTp}))
                                               : Split(of({Axis::kFsdp}));
  }
  return shardings;
}

Result<Graph> PartitionOn(const Graph& graph, const Mesh& mesh, int rank, const Shardings& weights,
                          ResidualSplit residual = ResidualSplit::kTokens) {
  return Partition(graph, {.mesh = mesh, .rank = rank, .residual = residual, .weights = &weights});
}

std::vector<Graph> Parts(const Graph& graph, const Mesh& mesh, const Shardings& weights,
                         ResidualSplit residual = ResidualSplit::kTokens) {
  std::vector<Graph> parts;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    auto part = PartitionOn(graph, mesh, rank, weights, residual);
    TEMPER_CHECK(part.ok()) << part.status().message();
    TEMPER_CHECK(Verify(*part).ok()) << Verify(*part).message();
    parts.push_back(std::move(*part));
  }
  return parts;
}

int Count(const Graph& graph, Op op) {
  return static_cast<int>(
      std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const Node& n) { return n.op == op; }));
}

std::vector<const Node*> NodesOf(const Graph& graph, Op op) {
  std::vector<const Node*> nodes;
  for (const Node& n : graph.nodes()) {
    if (n.op == op) nodes.push_back(&n);
  }
  return nodes;
}

TEST(Partition, DataAxesSplitRows) {
  EXPECT_EQ(DataAxes(Mesh()), AxisSet());
  const Mesh all = MeshOf({{Axis::kPp, 2},
                           {Axis::kDp, 2},
                           {Axis::kFsdp, 2},
                           {Axis::kDepth, 2},
                           {Axis::kRow, 2},
                           {Axis::kTp, 2},
                           {Axis::kCopy, 2}});
  EXPECT_EQ(DataAxes(all), (AxisSet{Axis::kDp, Axis::kFsdp, Axis::kDepth, Axis::kRow}));
  EXPECT_EQ(DataAxes(MeshOf({{Axis::kFsdp, 2}})), AxisSet(Axis::kFsdp));
  // Ranks of cp have parts of the same rows.
  const Mesh shared = MeshOf({{Axis::kFsdp, 2}, {Axis::kCp, 2}, {Axis::kTp, 2}});
  EXPECT_EQ(DataAxes(shared), AxisSet(Axis::kFsdp));
  EXPECT_EQ(TokenAxes(shared), (AxisSet{Axis::kFsdp, Axis::kCp}));
  EXPECT_EQ(ContextPartOf(shared, 2, 32), (ContextPart{32, 2, 1}));
}

TEST(Partition, OneRankKeepsAllNodesAndTypes) {
  const Net net;
  const Graph part = Parts(net.graph, Mesh(), DefaultsFor(net.graph, Mesh()))[0];
  ASSERT_EQ(part.nodes().size(), net.graph.nodes().size());
  for (size_t i = 0; i < part.nodes().size(); ++i) {
    const Node &got = part.nodes()[i], &want = net.graph.nodes()[i];
    EXPECT_EQ(ToString(got.op), ToString(want.op));
    EXPECT_EQ(TypesOf(part, got.inputs), TypesOf(net.graph, want.inputs));
    EXPECT_EQ(TypesOf(part, got.outputs), TypesOf(net.graph, want.outputs));
  }
}

TEST(Partition, SourcesRecordTheirPartsWhichTileTheWhole) {
  const Net net;
  for (const Mesh& mesh : {MeshOf({{Axis::kFsdp, 3}}), MeshOf({{Axis::kDp, 2}, {Axis::kTp, 2}}),
                           MeshOf({{Axis::kFsdp, 2}, {Axis::kTp, 2}})}) {
    SCOPED_TRACE(mesh.ToString());
    const Shardings weights = DefaultsFor(net.graph, mesh);
    const auto parts = Parts(net.graph, mesh, weights);
    for (const auto& [name, sharding] : weights) {
      const Value& whole = net.graph.value(net.graph.FindSource(name));
      std::map<std::vector<int64_t>, int> owners;  // of every element
      for (const Graph& part : parts) {
        const Value& v = part.value(part.FindSource(name));
        EXPECT_EQ(v.role, Role::kWeight);
        EXPECT_TRUE(v.trainable);
        ASSERT_TRUE(v.shard.has_value()) << name;
        EXPECT_EQ(v.shard->global, whole.type.shape);
        EXPECT_EQ(v.shard->split, sharding.split());
        for (int64_t i = 0; i < v.type.shape[0]; ++i) {
          for (int64_t k = 0; k < v.type.shape.elements() / std::max<int64_t>(1, v.type.shape[0]); ++k) {
            ++owners[{v.shard->begin[0] + i, (v.shard->begin.rank() > 1 ? v.shard->begin[1] : 0) + k}];
          }
        }
      }
      EXPECT_EQ(static_cast<int64_t>(owners.size()), whole.type.shape.elements()) << name;
      const int copies = mesh.ranks() / mesh.size(sharding.split());
      for (const auto& [element, count] : owners) EXPECT_EQ(count, copies) << name;
    }
    for (const Graph& part : parts) {
      const Value& token = part.value(part.FindSource("token"));
      EXPECT_EQ(token.type.shape[0], T / mesh.size(DataAxes(mesh))) << "rows of the rank";
      EXPECT_FALSE(token.shard.has_value()) << "the host distributes rows";
    }
  }
}

TEST(Partition, KeepsNamesBlocksAndOrderOfNodes) {
  const Net net;
  const Mesh mesh = MeshOf({{Axis::kFsdp, 2}, {Axis::kTp, 2}});
  const Graph part = Parts(net.graph, mesh, DefaultsFor(net.graph, mesh))[3];
  size_t at = 0;
  for (const Node& node : net.graph.nodes()) {
    // Collectives may stand in between.
    while (at < part.nodes().size() && part.nodes()[at].op != node.op) {
      EXPECT_TRUE(IsCollective(part.nodes()[at].op)) << ToString(part.nodes()[at].op);
      ++at;
    }
    ASSERT_LT(at, part.nodes().size()) << ToString(node.op);
    EXPECT_EQ(part.nodes()[at].block, node.block);
    const Value& out = part.value(part.nodes()[at].outputs[0]);
    EXPECT_EQ(out.name, net.graph.value(node.outputs[0]).name);
    EXPECT_EQ(out.role, net.graph.value(node.outputs[0]).role);
    ++at;
  }
  EXPECT_EQ(at, part.nodes().size());
}

TEST(Partition, GivesAllRanksTheSameNodes) {
  const Net net;
  for (ResidualSplit residual : {ResidualSplit::kTokens, ResidualSplit::kWhole}) {
    const Mesh mesh = MeshOf({{Axis::kFsdp, 3}, {Axis::kTp, 2}});
    const auto parts = Parts(net.graph, mesh, DefaultsFor(net.graph, mesh), residual);
    for (const Graph& part : parts) {
      const Graph first = Differentiate(parts[0], false), own = Differentiate(part, false);
      ASSERT_TRUE(Verify(own).ok()) << Verify(own).message();
      ASSERT_EQ(own.nodes().size(), first.nodes().size());
      for (size_t i = 0; i < own.nodes().size(); ++i) {
        EXPECT_EQ(own.nodes()[i].op, first.nodes()[i].op);
        EXPECT_EQ(own.nodes()[i].inputs, first.nodes()[i].inputs);
        EXPECT_EQ(own.nodes()[i].outputs, first.nodes()[i].outputs);
      }
    }
  }
}

// Megatron with sequence parallelism: per block a gather before the first products and a scatter of the sums after the
// last; the embedding's sums are scattered, too, and the head gathers.
TEST(Partition, TensorParallelismMovesActivationsTwicePerBlock) {
  const Net net;
  const Mesh mesh = MeshOf({{Axis::kTp, 2}});
  const Graph tokens = Parts(net.graph, mesh, DefaultsFor(net.graph, mesh))[0];
  EXPECT_EQ(Count(tokens, Op::kAllGather), 2 + 1) << "gate and up share theirs";
  EXPECT_EQ(Count(tokens, Op::kReduceScatter), 1 + 2);
  EXPECT_EQ(Count(tokens, Op::kAllReduce), 0);
  EXPECT_EQ(Count(tokens, Op::kBroadcast), 0);
  const Graph whole = Parts(net.graph, mesh, DefaultsFor(net.graph, mesh), ResidualSplit::kWhole)[0];
  EXPECT_EQ(Count(whole, Op::kAllReduce), 1 + 2);
  EXPECT_EQ(Count(whole, Op::kBroadcast), 2 + 1);
  EXPECT_EQ(Count(whole, Op::kAllGather) + Count(whole, Op::kReduceScatter), 0);
}

TEST(Partition, FullShardingGathersEachWeightOncePerBlockThatUsesIt) {
  const Net net;
  const Mesh mesh = MeshOf({{Axis::kFsdp, 2}});
  const Graph part = Parts(net.graph, mesh, DefaultsFor(net.graph, mesh))[0];
  std::multiset<std::string> gathered;
  for (const Node* node : NodesOf(part, Op::kAllGather)) gathered.insert(part.value(node->inputs[0]).name);
  EXPECT_EQ(gathered.size(), 2 * 4 + 2u);
  EXPECT_EQ(gathered.count("table"), 2u) << "before and after the blocks: it is not kept in between";
  // And its gradient is reduced as often.
  EXPECT_EQ(Count(Differentiate(part, false), Op::kReduceScatter), 2 * 4 + 2);
}

TEST(Partition, GradientsOfCopiesAreSummedByTheLastMicroBatchAndSquaresByTheUpdate) {
  const Net net;
  const Mesh mesh = MeshOf({{Axis::kDp, 2}, {Axis::kFsdp, 2}, {Axis::kTp, 2}});
  const Graph part = Parts(net.graph, mesh, DefaultsFor(net.graph, mesh))[0];
  const auto partial = [&](const char* name) { return part.value(part.FindSource(name)).shard->partial; };
  EXPECT_EQ(partial("0.up"), AxisSet(Axis::kDp)) << "tp has different rows of it, fsdp gathers and reduces";
  EXPECT_EQ(partial("0.norm"), (AxisSet{Axis::kDp, Axis::kTp})) << "norms see different tokens on each tensor rank";

  const auto sums_of = [](const Graph& graph) {
    std::map<std::string, int> sums;
    for (const Node* node : NodesOf(graph, Op::kAllReduce)) sums[node->attributes.String("axes")] += 1;
    return sums;
  };
  const Graph last = SyncGradients(Differentiate(part, true), {}, part, mesh);
  ASSERT_TRUE(Verify(last).ok()) << Verify(last).message();
  EXPECT_GT(sums_of(last)["dp"], 0);
  EXPECT_GT(sums_of(last)["dp,tp"], 0);
  const Graph update = BuildUpdate(part, {}, mesh);
  ASSERT_TRUE(Verify(update).ok()) << Verify(update).message();
  // Summed over the axes that split a weight. Clip takes all of them.
  EXPECT_EQ(sums_of(update), (std::map<std::string, int>{{"fsdp", 1}, {"fsdp,tp", 1}}));
  std::set<ValueId> reduced;
  for (const Node* node : NodesOf(update, Op::kAllReduce)) reduced.insert(node->outputs.begin(), node->outputs.end());
  const Node* const clip = NodesOf(update, Op::kClip)[0];
  for (size_t i = 0; i + 1 < clip->inputs.size(); ++i) EXPECT_TRUE(reduced.contains(clip->inputs[i])) << i;
}

// What a rank keeps is what its update reads: states are the optimizer's own.
TEST(DecideGradSync, ComparesWithTheBytesOfTheOptimizersStates) {
  const Net net;
  const Mesh mesh = MeshOf({{Axis::kFsdp, 2}});
  Graph part = Parts(net.graph, mesh, DefaultsFor(net.graph, mesh))[0];
  std::set<std::string> reasons;
  for (const UpdateRule* rule : UpdateRules()) {
    SCOPED_TRACE(rule->name);
    UpdateSpec update{.rule = rule, .settings = rule->Settings()};
    if (const UpdateRule* const others = rule->others()) {
      update.settings_of_others = others->Settings();
      update.groups = {{.of_the_others = true}};
    }
    Bytes whole;
    for (ValueId id = 0; id < part.num_values(); ++id) {
      Value& value = part.value(id);
      if (value.role != Role::kWeight || !value.trainable) continue;
      // Each use of the table is gathered anew.
      whole += TensorType{DType::kF32, value.shard->global}.bytes() * (value.name == "table" ? 2 : 1);
      value.update_group = rule->others() != nullptr && value.type.shape.rank() < 2 ? 1 : 0;
    }
    Bytes kept;
    const Graph built = BuildUpdate(part, update, mesh);
    for (ValueId id = 0; id < built.num_values(); ++id) {
      const Value& value = built.value(id);
      const bool source = value.updates == kNoValue && (value.role == Role::kWeight || value.role == Role::kGradient ||
                                                        value.role == Role::kOptimizerState);
      if (source) kept += value.type.bytes();
    }
    std::vector<Decision> decisions;
    EXPECT_EQ(DecideGradSync(part, 2, update, {}, &decisions), GradSync::kMicroBatch);
    ASSERT_EQ(decisions.size(), 1u);
    const double percent = 100 * static_cast<double>(whole.v) / static_cast<double>(kept.v);
    EXPECT_NE(decisions[0].reason.find(fmt::format("{:.1f} % of a rank's weights", percent)), std::string::npos)
        << percent << ": " << decisions[0].reason;
    reasons.insert(decisions[0].reason);
  }
  EXPECT_GE(reasons.size(), 3u);  // adamw, sgd and adamw_8bit keep different numbers of bytes
}

// Values that need no gradient need no broadcast node.
TEST(Partition, FrozenValuesNeedNoBroadcast) {
  Net net(/*train=*/false);
  net.graph.value(net.graph.FindSource("1.down")).trainable = true;
  const Mesh mesh = MeshOf({{Axis::kTp, 2}});
  const Graph part = Parts(net.graph, mesh, DefaultsFor(net.graph, mesh), ResidualSplit::kWhole)[0];
  EXPECT_EQ(Count(part, Op::kBroadcast), 1) << "of the last block's result, for the head";
}

// With rows split over tp and each part over fsdp, ranks of {fsdp, tp} are not in the order of the parts.
TEST(Partition, GathersFromTheInsideOut) {
  const Net net;
  const Mesh mesh = MeshOf({{Axis::kFsdp, 2}, {Axis::kTp, 2}});
  Shardings weights = DefaultsFor(net.graph, mesh);
  weights["0.norm"] = Split({Axis::kTp, Axis::kFsdp});
  const Graph part = Parts(net.graph, mesh, weights)[0];
  std::vector<std::string> steps;
  std::vector<double> sizes;
  for (const Node* node : NodesOf(part, Op::kAllGather)) {
    if (!part.value(node->inputs[0]).name.starts_with("0.norm")) continue;
    steps.push_back(node->attributes.String("axes"));
    sizes.push_back(node->attributes.Doubles("sizes")[0]);
  }
  EXPECT_EQ(steps, (std::vector<std::string>{"fsdp", "tp"}));
  EXPECT_EQ(sizes, (std::vector<double>{D / 2, D}));

  weights["0.norm"] = Split({Axis::kFsdp, Axis::kTp});
  const Graph together = Parts(net.graph, mesh, weights)[0];
  for (const Node* node : NodesOf(together, Op::kAllGather)) {
    if (part.value(node->inputs[0]).name == "0.norm") {
      EXPECT_EQ(node->attributes.String("axes"), "fsdp,tp") << "in mesh order: one step";
    }
  }
}

TEST(Partition, TellsOpsWhereTheirPartBegins) {
  Net net;
  GraphBuilder& build = net.build;
  const ValueId rng = build.Source("rng", {DType::kI64, {kNumRngWords}}, Role::kInput);
  // Dropout of a value split by columns and of one split by tokens.
  std::vector<Node> nodes = net.graph.nodes();
  for (Node& node : nodes) {
    if (node.op == Op::kGlu) {
      node = {.op = Op::kDropout,
              .inputs = {node.inputs[0], rng},
              .outputs = node.outputs,
              .attributes = {{"p", 0.5}},
              .block = node.block,
              .rng_name = "dropped"};
    }
  }
  net.graph.nodes() = nodes;
  const Mesh mesh = MeshOf({{Axis::kFsdp, 2}, {Axis::kTp, 2}});
  const auto parts = Parts(net.graph, mesh, DefaultsFor(net.graph, mesh));
  for (int rank = 0; rank < 4; ++rank) {
    const Graph& part = parts[static_cast<size_t>(rank)];
    const int tp = rank % 2;
    const Part words = PartOf(V, 2, tp), columns = PartOf(F, 2, tp);
    const Attributes& embedding = NodesOf(part, Op::kEmbedding)[0]->attributes;
    EXPECT_EQ(embedding.Int("begin"), words.begin);
    EXPECT_EQ(embedding.Int("whole"), V);
    const Attributes& loss = NodesOf(part, Op::kLinearCrossEntropy)[0]->attributes;
    EXPECT_EQ(loss.String("axes"), "tp");
    EXPECT_EQ(loss.Int("ranks"), 2);
    EXPECT_EQ(loss.Int("begin"), words.begin);
    EXPECT_EQ(loss.Int("whole"), V);
    const Node& dropout = *NodesOf(part, Op::kDropout)[0];
    EXPECT_EQ(dropout.attributes.IntOr("row", 0), 0) << "rows are counted from the first row of the rank's batch";
    EXPECT_EQ(dropout.attributes.Int("column"), columns.begin);
    EXPECT_EQ(dropout.attributes.Int("columns"), F);
    EXPECT_EQ(dropout.rng_name, "dropped") << "the same draws on all ranks";
  }
}

// The error of the first rank; all ranks have to have it.
std::string ErrorOf(const Graph& graph, const Mesh& mesh, const Shardings& weights,
                    ResidualSplit residual = ResidualSplit::kTokens) {
  std::string first;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const auto part = PartitionOn(graph, mesh, rank, weights, residual);
    EXPECT_FALSE(part.ok()) << "rank " << rank;
    if (part.ok()) return "";
    EXPECT_EQ(part.status().code(), StatusCode::kInvalidArgument);
    if (rank == 0) first = part.status().message();
    EXPECT_EQ(part.status().message(), first) << "rank " << rank;
  }
  return first;
}

TEST(Partition, RefusesTokensThatDoNotDivide) {
  const Net net;
  const Mesh five = MeshOf({{Axis::kFsdp, 5}}), eleven = MeshOf({{Axis::kTp, 11}});
  EXPECT_EQ(
      ErrorOf(net.graph, five, DefaultsFor(net.graph, five)),
      "mesh fsdp=5: 24 tokens per micro-batch (rows x max_seq_len) of token do not divide among 5 ranks; numbers near "
      "it that do: 20, 25");
  EXPECT_EQ(
      ErrorOf(net.graph, eleven, DefaultsFor(net.graph, eleven)),
      "mesh tp=11: rms_norm of block 0: 24 tokens per micro-batch (rows x max_seq_len) of x do not divide among 11 "
      "ranks of tp; numbers near it that do: 22, 33");
}

// The model fixes the columns, so the message suggests another mesh.
TEST(Partition, RefusesColumnsThatDoNotDivide) {
  const Net net;
  for (const auto& [ranks, near] : {std::pair(3, "2, 4"), std::pair(11, "8")}) {
    const Mesh mesh = MeshOf({{Axis::kTp, ranks}});
    EXPECT_EQ(ErrorOf(net.graph, mesh, DefaultsFor(net.graph, mesh), ResidualSplit::kHidden),
              "mesh tp=" + std::to_string(ranks) + ": rms_norm of block 0: 8 columns of x do not divide among " +
                  std::to_string(ranks) + " ranks of tp; sizes of tp near it that do: " + near);
  }
}

// Attention with keys of 4 and values of 2, perhaps with a sink per head.
struct SinkNet {
  Graph graph;
  GraphBuilder build{&graph};
  Shardings weights;

  explicit SinkNet(bool has_sink = true) {
    const auto index = [&](const char* name) { return build.TokenInput(name, DType::kI32, T); };
    const ValueId token = index("token"), target = index("target"), start = index("document_start");
    const ValueId table = Weight("table", {V, D}, Split({Axis::kTp}));
    const ValueId x = build.Embedding(table, token, 0, "x");
    const ValueId q = build.Linear(x, Weight("q", {4 * 4, D}, Split({Axis::kTp})), kNoValue, "q");
    const ValueId k = build.Linear(x, Weight("k", {2 * 4, D}, Split({Axis::kTp})), kNoValue, "k");
    const ValueId v = build.Linear(x, Weight("v", {2 * 2, D}, Split({Axis::kTp})), kNoValue, "v");
    Attributes heads = {{"heads", int64_t{4}}, {"kv_heads", int64_t{2}}, {"scale", 1.0}, {"row", T}};
    std::vector<ValueId> inputs = {q, k, v, start};
    if (has_sink) {
      heads.Set("sink", int64_t{1});
      inputs.push_back(Weight("sink", {4}, Split({Axis::kTp})));
    }
    const ValueId o = build.Add(Op::kAttention, std::move(inputs), heads, "o")[0];
    const ValueId y = build.Linear(o, Weight("o_proj", {D, 4 * 2}, Split({}, {Axis::kTp})), kNoValue, "y");
    build.Add(Op::kLinearCrossEntropy, {y, table, target}, {}, "loss", Role::kOutput);
  }
  ValueId Weight(const std::string& name, Shape shape, Sharding p) {
    weights[name] = std::move(p);
    const ValueId id = build.Source(name, {DType::kF32, shape}, Role::kWeight);
    graph.value(id).trainable = true;
    return id;
  }
};

TEST(Partition, ASinkGoesWithItsHeadsAndItsGradientStaysWithThem) {
  const SinkNet net;
  // Ranks of fsdp have other tokens: each has a term of the sink's gradient.
  for (const Mesh& mesh : {MeshOf({{Axis::kTp, 2}}), MeshOf({{Axis::kFsdp, 2}, {Axis::kTp, 2}})}) {
    for (const Graph& part : Parts(net.graph, mesh, net.weights)) {
      const Graph step = SyncGradients(Differentiate(part, false), {}, part, mesh);
      const Graph* const graphs[] = {&step};
      const Status proof = VerifyShardings(mesh, net.weights, graphs);
      EXPECT_TRUE(proof.ok()) << proof.message();
    }
  }
  for (const Graph& part : Parts(net.graph, MeshOf({{Axis::kTp, 2}}), net.weights)) {
    const Node& attention = *NodesOf(part, Op::kAttention).at(0);
    EXPECT_EQ(part.value(attention.inputs[4]).type.shape, (Shape{2}));
    EXPECT_EQ(part.value(attention.outputs[0]).type.shape, (Shape{T, 2 * 2}));
    const Graph step = Differentiate(part, false);
    ASSERT_TRUE(Verify(step).ok()) << Verify(step).message();
    const Node& backward = *NodesOf(step, Op::kAttentionBackward).at(0);
    EXPECT_EQ(step.value(backward.outputs[3]).type, (TensorType{DType::kF32, {2}}));
  }
}

TEST(Partition, RefusesASinkAndValuesOfAnotherWidthOverContextRanks) {
  SinkNet net;
  for (auto& [name, sharding] : net.weights) sharding = {};
  EXPECT_EQ(ErrorOf(net.graph, MeshOf({{Axis::kCp, 2}}), net.weights),
            "mesh cp=2: attention before the blocks: attention with a sink does not go with mesh.cp: rings of steps "
            "have none");
  EXPECT_EQ(ErrorOf(SinkNet(/*has_sink=*/false).graph, MeshOf({{Axis::kCp, 2}}), net.weights),
            "mesh cp=2: attention before the blocks: attention with values of another width than keys does not go with "
            "mesh.cp: rings of steps have none");
}

TEST(Partition, RefusesRowsThatDoNotSplitIntoChunks) {
  Graph graph;
  GraphBuilder build(&graph);
  const int64_t row = 18;
  const ValueId start = build.TokenInput("document_start", DType::kI32, 2 * row);
  const ValueId q = build.Source("q", {DType::kF32, {2 * row, 8}}, Role::kConstant);
  build.Add(Op::kAttention, {q, q, q, start},
            {{"heads", int64_t{2}}, {"kv_heads", int64_t{2}}, {"scale", 1.0}, {"row", row}}, "o");
  EXPECT_EQ(ErrorOf(graph, MeshOf({{Axis::kCp, 4}}), {}),
            "mesh cp=4: rows of 18 tokens (max_seq_len) do not divide into 8 chunks, two for each rank of cp; lengths "
            "near it that do: 16, 24");
  EXPECT_EQ(ErrorOf(graph, MeshOf({{Axis::kCp, 12}}), {}),
            "mesh cp=12: rows of 18 tokens (max_seq_len) do not divide into 24 chunks, two for each rank of cp; "
            "lengths near it that do: 24");
}

TEST(Partition, RefusesShardingsThatAnOpDoesNotSupport) {
  const Net net;
  const Mesh mesh = MeshOf({{Axis::kFsdp, 2}, {Axis::kTp, 2}});
  const auto with = [&](const std::string& name, const Sharding& p) {
    Shardings weights = DefaultsFor(net.graph, mesh);
    weights[name] = p;
    return weights;
  };
  EXPECT_EQ(
      ErrorOf(net.graph, mesh, with("0.up", Split({}, {Axis::kTp}))),
      "mesh fsdp=2,tp=2: linear of block 0: 0.up is split along its input dim over tp, but its other operand is not");
  EXPECT_EQ(ErrorOf(net.graph, mesh, with("0.up", Split({Axis::kFsdp, Axis::kTp}))),
            "mesh fsdp=2,tp=2: linear of block 0: 0.up cannot be gathered over fsdp: it is split fsdp+tp,-");
  EXPECT_EQ(ErrorOf(net.graph, mesh, with("table", Split({}, {Axis::kTp}))),
            "mesh fsdp=2,tp=2: linear_cross_entropy after the blocks: table is split along its input dim over tp");
}

// Both operand pairs of the loss pass through w: the one from `words`, which is split among ranks, is split by tokens
// there; the one from `all` is not.
struct TwoWays {
  Graph graph;
  Shardings weights;

  TwoWays() {
    GraphBuilder build(&graph);
    const auto weight = [&](const std::string& name, Shape shape, Sharding p) {
      weights[name] = std::move(p);
      return build.Source(name, {DType::kF32, shape}, Role::kWeight);
    };
    const ValueId token = build.TokenInput("token", DType::kI32, T);
    const ValueId target = build.TokenInput("target", DType::kI32, T);
    const ValueId words = weight("words", {V, D}, Split({Axis::kTp})), all = weight("all", {V, D}, {});
    const ValueId w = weight("w", {D, D}, {}), norm = weight("norm", {D}, {});
    const ValueId h = build.RmsNorm(build.Embedding(words, token, 0, "x"), norm, 1e-5, "h");
    const ValueId a = build.Linear(h, w, kNoValue, "a");
    const ValueId b = build.Linear(build.Embedding(all, token, 0, "p"), w, kNoValue, "b");
    build.Add(Op::kLinearCrossEntropy, {a, words, target, b, weight("head", {V, D}, Split({Axis::kTp}))},
              {{"pair2", int64_t{1}}}, "loss", Role::kOutput);
  }
};

// A gradient that is whole from one use and a term of a sum from the other cannot be summed.
TEST(Partition, RefusesATrainableWeightThatIsUsedInTwoWays) {
  TwoWays net;
  const Mesh mesh = MeshOf({{Axis::kTp, 2}});
  net.graph.value(net.graph.FindSource("norm")).trainable = true;
  EXPECT_TRUE(PartitionOn(net.graph, mesh, 0, net.weights).ok()) << "a frozen one has no gradient";
  net.graph.value(net.graph.FindSource("w")).trainable = true;
  EXPECT_EQ(
      ErrorOf(net.graph, mesh, net.weights),
      "mesh tp=2: w is used in different ways along tp: give it a sharding rule that splits it there, or none of the "
      "two that share it");
}

TEST(Partition, RefusesAHeadThatRanksWouldUseOnDifferentTokens) {
  TwoWays net;
  Graph& graph = net.graph;
  graph.value(graph.FindSource("norm")).trainable = true;
  graph.nodes().back().inputs[1] = graph.FindSource("all");
  EXPECT_EQ(ErrorOf(graph, MeshOf({{Axis::kTp, 2}}), net.weights),
            "mesh tp=2: linear_cross_entropy before the blocks: all is whole along tp, but its input is not");
}

TEST(Partition, RefusesHeadsThatDoNotDivide) {
  const auto attention = [](int64_t heads, int64_t kv_heads, const Mesh& mesh, const Sharding& kv) {
    Graph graph;
    GraphBuilder build(&graph);
    const auto index = [&](const char* name) { return build.TokenInput(name, DType::kI32, T); };
    const ValueId token = index("token"), target = index("target"), start = index("document_start");
    Shardings weights;
    const auto weight = [&](const std::string& name, Shape shape, Sharding p) {
      weights[name] = std::move(p);
      return build.Source(name, {DType::kF32, shape}, Role::kWeight);
    };
    const std::vector<Axis> tensor = (mesh.axes() & kTensorAxes).axes();
    const ValueId table = weight("table", {V, D}, Split(tensor));
    const ValueId x = build.Embedding(table, token, 0, "x");
    const ValueId q = build.Linear(x, weight("q", {heads * 2, D}, Split(tensor)), kNoValue, "q");
    const ValueId k = build.Linear(x, weight("k", {kv_heads * 2, D}, kv), kNoValue, "k");
    const ValueId v = build.Linear(x, weight("v", {kv_heads * 2, D}, kv), kNoValue, "v");
    const ValueId o =
        build.Add(Op::kAttention, {q, k, v, start}, {{"heads", heads}, {"kv_heads", kv_heads}, {"scale", 1.0}}, "o")[0];
    const ValueId y = build.Linear(o, weight("o_proj", {D, heads * 2}, Split({}, tensor)), kNoValue, "y");
    build.Add(Op::kLinearCrossEntropy, {y, table, target}, {}, "loss", Role::kOutput);
    return ErrorOf(graph, mesh, weights);
  };
  const Mesh tp4 = MeshOf({{Axis::kTp, 4}}), shared = MeshOf({{Axis::kTp, 2}, {Axis::kCopy, 2}});
  EXPECT_EQ(
      attention(6, 6, tp4, Split({Axis::kTp})),
      "mesh tp=4: attention before the blocks: 6 heads and 6 KV heads do not divide among 4 tensor-parallel ranks");
  EXPECT_EQ(
      attention(4, 2, tp4, Split({Axis::kTp})),
      "mesh tp=4: attention before the blocks: 4 heads and 2 KV heads do not divide among 4 tensor-parallel ranks");
  // Ranks that share a KV head have one KV head each.
  EXPECT_EQ(attention(8, 4, shared, Split({Axis::kTp})),
            "mesh tp=2,copy=2: attention before the blocks: 8 heads and 4 KV heads do not divide among 4 "
            "tensor-parallel ranks");
  EXPECT_EQ(
      attention(4, 2, shared, Split({Axis::kCopy})),
      "mesh tp=2,copy=2: attention before the blocks: queries are split over 'tp,copy', keys over 'copy', values over "
      "'copy': keys and values must be split alike, over the first of the axes that queries are split over");
}

}  // namespace
}  // namespace temper::partition_test
