// The two verifiers of meshes accept the passes' output on every mesh, and refuse every injected error: a collective
// that is missing, doubled or over the wrong axes; ranks whose Programs differ.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "../tiny_run.h"
#include "compile/mesh/collectives.h"
#include "compile/mesh/grad_sync.h"
#include "compile/mesh/ring.h"
#include "compile/mesh/verify_agreement.h"
#include "compile/mesh/verify_ring.h"
#include "compile/mesh/verify_sharding.h"
#include "compile/step/differentiate.h"
#include "compile/step/fuse.h"
#include "graph/named_ops.h"
#include "model/lora_rewrite.h"

namespace temper::tiny::verify_mesh_test {
namespace {

struct MeshCase {
  const char* name;
  std::vector<std::pair<Axis, int>> sizes;
  ResidualSplit residual = ResidualSplit::kTokens;
};

const std::vector<MeshCase>& Cases() {
  static const std::vector<MeshCase> cases = {
      {"fsdp3", {{Axis::kFsdp, 3}}},
      {"dp2_fsdp2", {{Axis::kDp, 2}, {Axis::kFsdp, 2}}},
      {"tp2", {{Axis::kTp, 2}}},
      {"tp2_whole", {{Axis::kTp, 2}}, ResidualSplit::kWhole},
      {"tp2_copy2", {{Axis::kTp, 2}, {Axis::kCopy, 2}}},
      {"fsdp2_tp2", {{Axis::kFsdp, 2}, {Axis::kTp, 2}}},
      {"cp2", {{Axis::kCp, 2}}},
      {"fsdp2_cp2", {{Axis::kFsdp, 2}, {Axis::kCp, 2}}},
      {"row2_tp2", {{Axis::kRow, 2}, {Axis::kTp, 2}}, ResidualSplit::kHidden},
      {"depth2_row2_tp2", {{Axis::kDepth, 2}, {Axis::kRow, 2}, {Axis::kTp, 2}}, ResidualSplit::kHidden},
  };
  return cases;
}

MeshSpec SpecOf(const MeshCase& c) {
  MeshSpec spec{.residual = c.residual};
  for (const auto& [axis, size] : c.sizes) spec.mesh.set_size(axis, size);
  return spec;
}

Graph ForwardOf(const std::string& config, Method method) {
  const auto model = MakeModel(config);
  Graph forward = model->Forward({.tokens = 96, .row = 4, .training = method != Method::kFull});
  if (method == Method::kFull) {
    TrainAllWeights(&forward);
    return forward;
  }
  LoraConfig lora{.r = 4, .alpha = 8};
  if (method == Method::kLoraWithHead) lora.target_modules = ".*";
  return AddLora(forward, Must(ResolveLora(model->modules(), lora)), /*dropout=*/0.1);
}

// CompileGraphs' result for a forward graph on one rank, before placement.
struct Step {
  MeshSpec spec;
  std::map<std::string, Sharding> weights;
  std::vector<Graph> graphs;  // first micro-batch, last one, update

  Step(const MeshSpec& mesh, const Graph& forward, bool once = false) : spec(mesh) {
    weights = Must(ShardWeights(forward, mesh.mesh, mesh.rules, mesh.residual)).shardings;
    const Graph local = Must(PartitionByRules(forward, {.mesh = mesh.mesh, .residual = mesh.residual}, mesh.rules));
    const Graph fused = Fuse(local);
    for (const bool accumulate : {false, true}) {
      Graph step = Differentiate(once ? TrainGathered(fused) : fused, accumulate);
      if (once) RestoreTrainable(fused, &step);
      step = LowerRings(RecomputeBlocks(step, {.gathered_blocks = 0}), {});
      const auto whole = once ? GatheredUses(fused) : std::vector<GatheredUse>();
      if (accumulate) step = SyncGradients(step, whole, fused, mesh.mesh);
      graphs.push_back(UpdateInPlace(ScheduleCollectives(step, {})));
    }
    graphs.push_back(BuildUpdate(local, {}, mesh.mesh));
  }
  Status Check() const {
    for (const Graph& graph : graphs) TEMPER_RETURN_IF_ERROR(VerifyRings(graph));
    return VerifyShardings(spec.mesh, weights, std::vector{&graphs[0], &graphs[1], &graphs[2]});
  }
};

// `graph` with outputs [first, first + count) of node `index` replaced by its inputs; without the node if none is left.
Graph Without(const Graph& graph, size_t index, size_t first, size_t count) {
  Graph result;
  for (ValueId id = 0; id < graph.num_values(); ++id) result.AddValue(graph.value(id));
  std::map<ValueId, ValueId> instead;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    Node node = graph.nodes()[i];
    for (ValueId& id : node.inputs) {
      if (const auto it = instead.find(id); it != instead.end()) id = it->second;
    }
    if (i == index) {
      for (size_t k = first; k < first + count; ++k) instead[node.outputs[k]] = node.inputs[k];
      node.inputs.erase(node.inputs.begin() + static_cast<long>(first),
                        node.inputs.begin() + static_cast<long>(first + count));
      node.outputs.erase(node.outputs.begin() + static_cast<long>(first),
                         node.outputs.begin() + static_cast<long>(first + count));
      if (node.outputs.empty()) continue;
    }
    result.AddNode(std::move(node));
  }
  return result;
}

class VerifiedMesh : public testing::TestWithParam<int> {};

TEST_P(VerifiedMesh, IsAcceptedAndEveryMissingAllReduceIsFound) {
  const MeshSpec spec = SpecOf(Cases()[static_cast<size_t>(GetParam())]);
  const bool shares = spec.mesh.size(Axis::kCopy) > 1;
  int planted = 0;
  for (const std::string& config :
       {LlamaConfigText(true), LlamaConfigText(false), OptConfigText(true), OptConfigText(false)}) {
    if (shares && config.find("OPT") != config.npos) continue;
    for (const Method method : {Method::kFull, Method::kLora, Method::kLoraWithHead}) {
      const Step once(spec, ForwardOf(config, method), /*once=*/true);
      ASSERT_TRUE(once.Check().ok()) << config << once.Check().message();
      Step step(spec, ForwardOf(config, method));
      ASSERT_TRUE(step.Check().ok()) << config << step.Check().message();
      for (Graph& graph : step.graphs) {
        const Graph good = graph;
        for (size_t i = 0; i < good.nodes().size(); ++i) {
          const Node& node = good.nodes()[i];
          if (node.op != Op::kAllReduce) continue;
          for (size_t k = 0; k < node.outputs.size(); ++k) {
            graph = Without(good, i, k, 1);
            ++planted;
            EXPECT_FALSE(step.Check().ok()) << "without the sum of " << good.value(node.inputs[k]).name;
          }
        }
        graph = good;
      }
    }
  }
  EXPECT_GT(planted, 0);
}

TEST_P(VerifiedMesh, EveryCollectiveOverWrongAxesIsFound) {
  const MeshSpec spec = SpecOf(Cases()[static_cast<size_t>(GetParam())]);
  std::vector<Axis> others = spec.mesh.axes().axes();
  const bool several = others.size() > 1;
  if (!several) others = {others[0] == Axis::kDp ? Axis::kTp : Axis::kDp};  // which has one rank
  Step step(spec, ForwardOf(LlamaConfigText(true), Method::kFull));
  int planted = 0;
  for (Graph& graph : step.graphs) {
    for (Node& node : graph.nodes()) {
      if (!IsCollective(node.op)) continue;
      const Attributes good = node.attributes;
      for (const Axis other : others) {
        // Axes of one mesh have two ranks each here, so that types do not reveal the error.
        if ((several && good.Int("ranks") != 2) || good.String("axes") == ToString(other)) continue;
        node.attributes.Set("axes", std::string(ToString(other)));
        node.attributes.Set("ranks", int64_t{spec.mesh.size(other)});
        // A whole value may take any other rank's copy.
        EXPECT_EQ(step.Check().ok(), node.op == Op::kBroadcast) << ToString(node.op) << good.ToString();
        ++planted;
      }
      node.attributes = good;
    }
  }
  EXPECT_GE(planted, 4);
}

INSTANTIATE_TEST_SUITE_P(Meshes, VerifiedMesh, testing::Range(0, static_cast<int>(Cases().size())),
                         [](const auto& info) { return std::string(Cases()[static_cast<size_t>(info.param)].name); });

Step StepOn(const char* name, Method method = Method::kFull) {
  for (const MeshCase& c : Cases()) {
    if (std::string(c.name) == name) return Step(SpecOf(c), ForwardOf(LlamaConfigText(true), method));
  }
  TEMPER_CHECK(false) << name;
  std::abort();
}

void ExpectRefused(const Step& step, const std::vector<std::string>& parts) {
  const Status status = step.Check();
  ASSERT_FALSE(status.ok());
  for (const std::string& part : parts) EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
}

TEST(ShardingVerifier, NamesTheGradientWhoseSumOverDepthIsMissing) {
  Step step = StepOn("depth2_row2_tp2");
  Graph& last = step.graphs[1];
  for (size_t i = 0; i < last.nodes().size(); ++i) {
    const Node& node = last.nodes()[i];
    if (node.op != Op::kAllReduce || node.attributes.String("axes") != "depth" || node.block != 1) continue;
    last = Without(last, i, 0, node.outputs.size());
    break;
  }
  ExpectRefused(step, {"sum_squares of block 1", "grad:model.layers.1.",
                       "is terms of a sum over depth, but is used as if it were the sum"});
}

TEST(ShardingVerifier, NamesTheNodeThatAddsTermsToAWhole) {
  Step step = StepOn("tp2_whole");
  Graph& graph = step.graphs[0];
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    if (graph.nodes()[i].op != Op::kAllReduce || graph.nodes()[i].phase != Phase::kForward) continue;
    if (graph.nodes()[i].block != 1) continue;
    graph = Without(graph, i, 0, 1);
    break;
  }
  ExpectRefused(step, {"the forward node add of block 1", "terms of a sum over tp", "a whole value"});
}

TEST(ShardingVerifier, RefusesASumThatIsMadeTwice) {
  Step step = StepOn("dp2_fsdp2");
  Graph& update = step.graphs[2];
  Graph twice;
  for (ValueId id = 0; id < update.num_values(); ++id) twice.AddValue(update.value(id));
  bool done = false;
  for (const Node& node : update.nodes()) {
    twice.AddNode(node);
    if (done || node.op != Op::kAllReduce) continue;
    Node again = node;
    again.inputs = node.outputs;
    for (ValueId& id : again.outputs) id = twice.AddValue(twice.value(id));
    twice.AddNode(again);
    done = true;
  }
  update = twice;
  ExpectRefused(step, {"all_reduce", "where it is no term of a sum: it would be counted once per rank"});
}

TEST(ShardingVerifier, RefusesWeightsWithAnotherShardingThanTheSteps) {
  Step step = StepOn("fsdp2_tp2");
  Sharding& p = step.weights.at("model.layers.0.self_attn.q_proj.weight");
  std::swap(p.dims[0], p.dims[1]);
  ExpectRefused(step, {"model.layers.0.self_attn.q_proj.weight is split over"});
  Step embedding = StepOn("fsdp2_tp2");
  Sharding& table = embedding.weights.at("model.embed_tokens.weight");
  std::swap(table.dims[0][0], table.dims[0][1]);
  ExpectRefused(embedding, {"model.embed_tokens.weight is split over 'fsdp+tp'"});
}

// ---- all ranks' Programs

struct AllRanks {
  MeshSpec spec;
  std::vector<std::vector<Program>> programs;

  explicit AllRanks(const MeshCase& c) : AllRanks(SpecOf(c), 3) {}
  AllRanks(const MeshSpec& mesh, int micro_batches, const std::string& config = LlamaConfigText(true)) : spec(mesh) {
    const Graph forward = ForwardOf(config, Method::kFull);
    for (spec.rank = 0; spec.rank < spec.mesh.ranks(); ++spec.rank) {
      const StepSpec step{.micro_batches = micro_batches, .mesh = spec};
      programs.push_back(Must(CompileGraphs(TrainAndEval(forward, forward), step)).programs.all());
    }
  }
  Status Check() const {
    std::vector<const Program*> train;
    for (const auto& p : programs) train.push_back(&p[0]);
    return VerifyAgreement(spec.mesh, train);
  }
  // Swaps two collectives of different groups or kinds in a segment of the
  // rank; or, if no segment has any, the first two segments that it runs.
  void SwapTwoOf(size_t rank) {
    const auto meets = [](const Instruction& i) { return i.attributes.Has("axes") && i.op != Op::kBroadcast; };
    Program& program = programs[rank][0];
    for (Segment& segment : program.segments) {
      auto& list = segment.instructions;
      for (size_t i = 0; i < list.size(); ++i) {
        for (size_t k = i + 1; k < list.size(); ++k) {
          const bool differ =
              list[i].op != list[k].op || !(list[i].attributes.ToString() == list[k].attributes.ToString());
          if (!meets(list[i]) || !meets(list[k]) || !differ) continue;
          std::swap(list[i], list[k]);
          return;
        }
      }
    }
    std::vector<Call*> runs;
    for (Call& call : program.schedule) {
      if (call.kind == Call::Kind::kRun) runs.push_back(&call);
    }
    std::swap(*runs[0], *runs[1]);
  }
  Instruction& First(size_t rank, Op op) {
    for (Segment& segment : programs[rank][0].segments) {
      for (Instruction& i : segment.instructions) {
        if (i.op == op) return i;
      }
    }
    TEMPER_CHECK(false) << ToString(op);
    std::abort();
  }
};

TEST(AgreementVerifier, AcceptsTheProgramsOfEveryMesh) {
  for (const MeshCase& c : Cases()) {
    const AllRanks all(c);
    EXPECT_TRUE(all.Check().ok()) << c.name << ": " << all.Check().message();
  }
}

TEST(AgreementVerifier, RefusesTwoCollectivesSwappedOnOneRank) {
  for (const MeshCase& c : Cases()) {
    // All sums of a block are alike there: a swap changes nothing.
    if (c.name == std::string("tp2_whole")) continue;
    AllRanks all(c);
    const size_t rank = all.programs.size() - 1;
    all.SwapTwoOf(rank);
    const Status status = all.Check();
    EXPECT_FALSE(status.ok()) << c.name;
    EXPECT_NE(status.message().find("ranks do not meet"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("micro-batch 0"), std::string::npos) << status.message();
  }
}

// The same collectives are hidden behind gradients of weights on all tensor ranks, although their parts differ in size.
TEST(AgreementVerifier, AcceptsPartsThatDiffer) {
  for (const int64_t ffn : {127, 129, 321, 511}) {
    std::string config = LlamaConfigText(/*tied=*/false, /*hidden=*/256, /*blocks=*/2);
    const std::string even = "\"intermediate_size\": 512";
    config.replace(config.find(even), even.size(), fmt::format("\"intermediate_size\": {}", ffn));
    for (const MeshCase& c : {MeshCase{"tp2", {{Axis::kTp, 2}}},
                              {"tp4", {{Axis::kTp, 4}}},
                              {"tp2_whole", {{Axis::kTp, 2}}, ResidualSplit::kWhole},
                              {"fsdp3_tp2", {{Axis::kFsdp, 3}, {Axis::kTp, 2}}},
                              {"pp2_tp2", {{Axis::kPp, 2}, {Axis::kTp, 2}}},
                              {"2d", {{Axis::kRow, 2}, {Axis::kTp, 2}}, ResidualSplit::kHidden}}) {
      SCOPED_TRACE(fmt::format("{} with {} columns", c.name, ffn));
      AllRanks all(SpecOf(c), /*micro_batches=*/2, config);
      EXPECT_TRUE(all.Check().ok()) << all.Check().message();
      const auto& segments = all.programs[0][0].segments;
      EXPECT_TRUE(std::any_of(segments.begin(), segments.end(), [](const Segment& segment) {
        return std::any_of(segment.instructions.begin(), segment.instructions.end(),
                           [](const Instruction& i) { return i.attributes.Flag("soon"); });
      })) << "nothing is hidden";
    }
  }
}

TEST(AgreementVerifier, RefusesACollectiveInAnotherLaneOnOneRank) {
  for (const char* const flag : {"background", "soon"}) {
    AllRanks all(Cases()[0]);
    all.First(2, Op::kAllGather).attributes.Set(flag, int64_t{flag == std::string("soon")});
    const Status status = all.Check();
    ASSERT_FALSE(status.ok()) << flag;
    EXPECT_NE(status.message().find("ranks do not meet"), std::string::npos) << status.message();
  }
}

TEST(AgreementVerifier, RefusesASizeThatDiffersOnOneRank) {
  AllRanks all(Cases()[0]);
  Instruction& gather = all.First(2, Op::kAllGather);
  // The part of this rank, one row less.
  for (Segment& segment : all.programs[2][0].segments) {
    for (const Instruction& i : segment.instructions) {
      if (&i != &gather) continue;
      TensorType& part = segment.operands[static_cast<size_t>(i.inputs[0])];
      part.shape.set_dim(0, part.shape[0] - 1);
    }
  }
  const Status status = all.Check();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("the parts of tensor 0 do not make its"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("rank 2 has"), std::string::npos) << status.message();
}

TEST(AgreementVerifier, RefusesAMicroBatchLessOnOneRank) {
  AllRanks all(Cases()[0]);
  auto& schedule = all.programs[1][0].schedule;
  schedule.erase(std::find_if(schedule.begin(), schedule.end(), [](const Call& c) { return c.micro_batch == 2; }),
                 schedule.end());
  const Status status = all.Check();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("rank 1 has finished, while rank 0 reaches"), std::string::npos) << status.message();
}

// Stages run different Programs: their sums match, and every send has its receive.
TEST(AgreementVerifier, MatchesSendsWithReceivesOfAPipeline) {
  for (const PipelineKind kind : {PipelineKind::kOneForwardOneBackward, PipelineKind::kInterleaved,
                                  PipelineKind::kZeroBubble, PipelineKind::kGpipe}) {
    MeshSpec spec = SpecOf({"pp2_fsdp2", {{Axis::kPp, 2}, {Axis::kFsdp, 2}}});
    spec.pipeline = {.kind = kind};
    if (kind == PipelineKind::kInterleaved) spec.pipeline = {kind, 2, {0, 1, 1, 1}};
    AllRanks all(spec, /*micro_batches=*/4);
    ASSERT_TRUE(all.Check().ok()) << ToString(kind) << ": " << all.Check().message();
    Instruction& send = all.First(1, Op::kSend);
    send.attributes.Set("tag", send.attributes.Int("tag") + 1000);
    const Status status = all.Check();
    ASSERT_FALSE(status.ok()) << ToString(kind);
    EXPECT_NE(status.message().find("from rank 1 to rank 3: the first sends tag 10"), std::string::npos)
        << status.message();
  }
}

}  // namespace
}  // namespace temper::tiny::verify_mesh_test
