// Experts that are dealt to ranks (the mesh axis ep): losses, gradient norms and loads are those of one rank, the proof
// of shardings accepts what is compiled, and checkpoints go to and from any other mesh.
#include <gtest/gtest.h>

#include "base/scratch_folder.h"
#include "graph/named_ops.h"
#include "saving_rank.h"
#include "thread_ranks.h"

namespace temper::tiny::expert_parallel_test {
namespace {

MeshSpec MeshOf(std::initializer_list<std::pair<Axis, int>> sizes) {
  MeshSpec spec;
  for (const auto& [axis, size] : sizes) spec.mesh.set_size(axis, size);
  return spec;
}

struct Curve {
  std::vector<double> loss, norm, aux, loads;
};

Curve CurveOf(const RunSpec& spec, int steps) {
  TinyRun run(spec);
  Curve curve;
  for (int step = 0; step < steps; ++step) {
    Batch batch = run.MakeBatch(static_cast<uint64_t>(step));
    run.Step(batch, 1e-3);
    curve.loss.push_back(run.loss_sum() / static_cast<double>(batch.supervised));
    curve.norm.push_back(run.grad_norm());
    curve.aux.push_back(run.aux_loss());
    curve.loads.push_back(run.squares_of_loads());
  }
  return curve;
}

struct Case {
  const char* name;
  std::string config;
  Method method;
  MeshSpec mesh;
  double balance = 0;
  Recompute recompute = Recompute::kNone;
};

void ExpectCurveOfOneRank(const Case& c, int steps) {
  SCOPED_TRACE(fmt::format("{} on {}", c.name, c.mesh.mesh.ToString()));
  RunSpec spec{.config = c.config,
               .method = c.method,
               .rows_per_micro_batch = c.mesh.mesh.size(DataAxes(c.mesh.mesh)),
               .micro_batches = 2,
               .threads = 1,
               .settings = UpdateSettings(Op::kAdamw, {{"eps", 1e-5}}),
               .balance = c.balance};
  const Curve one = CurveOf(spec, steps);
  spec.mesh = c.mesh;
  spec.recompute = c.recompute;
  const auto ranks = OnThreadRanks<Curve>(spec, [&](const RunSpec& own) { return CurveOf(own, steps); });
  for (const Curve& mesh : ranks) {
    EXPECT_EQ(mesh.loss, ranks[0].loss) << "ranks disagree about the loss";
    for (size_t s = 0; s < mesh.loss.size(); ++s) {
      EXPECT_NEAR(mesh.loss[s], one.loss[s], 1e-5 * one.loss[s]) << "step " << s + 1;
      EXPECT_NEAR(mesh.norm[s], one.norm[s], 1e-4 * one.norm[s]) << "step " << s + 1;
      EXPECT_NEAR(mesh.aux[s], one.aux[s], 1e-5 * one.aux[s]) << "step " << s + 1;
      EXPECT_EQ(mesh.loads[s], one.loads[s]) << "step " << s + 1;
    }
  }
}

// Full fine-tuning, and adapters of experts. Three steps: where rounding differs, a router sends tokens elsewhere in
// the end.
TEST(ExpertParallel, HasTheLossesOfOneRank) {
  const MeshSpec ep2 = MeshOf({{Axis::kEp, 2}}), fsdp2_ep2 = MeshOf({{Axis::kFsdp, 2}, {Axis::kEp, 2}}),
                 ep2_tp2 = MeshOf({{Axis::kEp, 2}, {Axis::kTp, 2}}), pp2_ep2 = MeshOf({{Axis::kPp, 2}, {Axis::kEp, 2}});
  for (const Method method : {Method::kFull, Method::kLora}) {
    const std::string config = Qwen3MoeConfigText();
    const char* const name = method == Method::kFull ? "full Qwen 3 MoE" : "LoRA Qwen 3 MoE";
    ExpectCurveOfOneRank({name, config, method, ep2, /*balance=*/3}, 3);
    ExpectCurveOfOneRank({name, config, method, MeshOf({{Axis::kDp, 2}, {Axis::kEp, 2}}), 3}, 2);
    ExpectCurveOfOneRank({name, config, method, fsdp2_ep2, 3, Recompute::kBlock}, 3);
    ExpectCurveOfOneRank({name, config, method, ep2_tp2, 3}, 2);
    ExpectCurveOfOneRank({name, config, method, pp2_ep2, 3, Recompute::kBlock}, 2);
  }
  ExpectCurveOfOneRank({"full Qwen 3 MoE", Qwen3MoeConfigText(), Method::kFull, MeshOf({{Axis::kEp, 3}})}, 2);
  ExpectCurveOfOneRank(
      {"full Qwen 3 MoE", Qwen3MoeConfigText(), Method::kFull, MeshOf({{Axis::kCp, 2}, {Axis::kEp, 2}})}, 2);
  MeshSpec whole = ep2_tp2;
  whole.residual = ResidualSplit::kWhole;
  ExpectCurveOfOneRank({"full Qwen 3 MoE, whole residual", Qwen3MoeConfigText(), Method::kFull, whole}, 2);
  // An expert of all tokens beside them, with a gate of its own; without one, behind a dense block.
  ExpectCurveOfOneRank({"full Qwen 3.5 MoE", Qwen35MoeConfigText(), Method::kFull, fsdp2_ep2}, 2);
  ExpectCurveOfOneRank({"full DeepSeek-V3", DeepseekV3ConfigText(), Method::kFull, ep2_tp2}, 2);
}

// On every rank of the mesh, at the same time.
void OnMesh(const MeshSpec& mesh, RunSpec spec, const std::function<void(const RunSpec&)>& body) {
  spec.mesh = mesh;
  spec.rows_per_micro_batch = spec.data_ranks();
  OnThreadRanks<bool>(spec, [&](const RunSpec& own) {
    body(own);
    return true;
  });
}

TEST(ExpertParallel, CheckpointsOfAnyMeshAreResumedByAnyOther) {
  for (const Method method : {Method::kFull, Method::kLora}) {
    const std::unique_ptr<Model> model = MakeModel(Qwen3MoeConfigText());
    const std::vector<StoredWeight> stored =
        method == Method::kFull ? model->StoredWeights()
                                : LoraWeights(Must(ResolveLora(model->modules(), {.r = 4, .alpha = 6})));
    const RunSpec spec{.config = Qwen3MoeConfigText(), .method = method, .row = 16, .micro_batches = 1};
    std::vector<std::unique_ptr<ScratchFolder>> folders;
    folders.push_back(std::make_unique<ScratchFolder>());
    SavingRank alone(spec, stored);
    (void)alone.Train(1);
    alone.Save(folders.back()->path());
    const Tensors expected = TensorsOf(CheckpointFolder(folders.back()->path(), 0));
    for (const MeshSpec& mesh :
         {MeshOf({{Axis::kEp, 2}}), MeshOf({{Axis::kFsdp, 2}, {Axis::kEp, 3}}), MeshOf({{Axis::kTp, 2}}),
          MeshOf({{Axis::kPp, 2}, {Axis::kEp, 2}}), MeshOf({{Axis::kDp, 2}, {Axis::kEp, 2}})}) {
      SCOPED_TRACE(mesh.mesh.ToString());
      const std::string from = folders.back()->path();
      const std::string to = folders.emplace_back(std::make_unique<ScratchFolder>())->path();
      OnMesh(mesh, spec, [&](const RunSpec& own) {
        SavingRank rank(own, stored);
        rank.Restore(from);
        rank.Save(to);
      });
      EXPECT_TRUE(TensorsOf(CheckpointFolder(to, 0)) == expected) << "other tensors than one rank's";
    }
  }
}

// Compiles a forward pass for a mesh; the reason why it cannot.
std::string Refusal(const std::string& config, const MeshSpec& mesh, std::vector<ShardingRule> rules = {}) {
  Graph forward = MakeModel(config)->Forward({.tokens = 96, .row = 4, .training = false});
  TrainAllWeights(&forward);
  const auto local = PartitionByRules(forward, {.mesh = mesh.mesh, .residual = mesh.residual}, rules);
  return local.ok() ? "" : std::string(local.status().message());
}

TEST(ExpertParallel, WhatCannotBeDealtIsRefusedByName) {
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), text.npos) << text << "\nshould have: " << part;
  };
  has(Refusal(LlamaConfigText(false), MeshOf({{Axis::kEp, 2}})), "this model has none: use mesh.fsdp");
  has(Refusal(Qwen3MoeConfigText(), MeshOf({{Axis::kEp, 4}})),
      "6 experts do not divide among 4 ranks of mesh.ep; sizes that work: 2, 3, 6");
  has(Refusal(GptOssConfigText(), MeshOf({{Axis::kEp, 2}})), "experts with biases are not dealt to ranks");
  has(Refusal(Qwen3MoeConfigText(), MeshOf({{Axis::kEp, 2}}), {{"experts", "fsdp,-,-"}}),
      "its first dim has to be split over ep first, such as 'ep+fsdp,-,-'");
}

}  // namespace
}  // namespace temper::tiny::expert_parallel_test
