// What the mesh may change of a run is the order of sums: ten steps on every mesh have the losses and gradient norms of
// one rank, within what that order does in f32.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "../tiny_run.h"
#include "comm/local/local_communicator.h"

namespace temper::tiny {
namespace {

constexpr int kSteps = 10;

struct Curve {
  std::vector<double> loss, norm;
};

Curve Train(const RunSpec& spec) {
  TinyRun run(spec);
  Curve curve;
  for (int step = 0; step < kSteps; ++step) {
    Batch batch = run.MakeBatch(static_cast<uint64_t>(step));
    // Ten steps at a rate at which ten times rounding stays rounding: at 1e-2 these adapters diverge.
    run.Step(batch, /*learning_rate=*/1e-3);
    curve.loss.push_back(run.loss_sum() / static_cast<double>(batch.supervised));
    curve.norm.push_back(run.grad_norm());
  }
  return curve;
}

Curve TrainOnMesh(RunSpec spec) {
  const int ranks = spec.mesh.mesh.ranks();
  ThreadWorld world(ranks);
  std::vector<Curve> curves(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      RunSpec own = spec;
      own.mesh.rank = rank;
      own.threads = 1;
      const auto communicator = world.Join(rank);
      own.communicator = communicator.get();
      curves[static_cast<size_t>(rank)] = Train(own);
    });
  }
  for (std::thread& t : threads) t.join();
  for (const Curve& c : curves) {
    EXPECT_EQ(c.loss, curves[0].loss) << "ranks disagree about the loss";
    EXPECT_EQ(c.norm, curves[0].norm) << "ranks disagree about the gradient norm";
  }
  return curves[0];
}

MeshSpec MeshOf(std::initializer_list<std::pair<Axis, int>> sizes, ResidualSplit residual = ResidualSplit::kTokens) {
  MeshSpec spec{.residual = residual};
  for (const auto& [axis, size] : sizes) spec.mesh.set_size(axis, size);
  return spec;
}

MeshSpec WithRules(MeshSpec spec, std::vector<PlacementRule> rules) {
  spec.rules = std::move(rules);
  return spec;
}

MeshSpec Deciding(MeshSpec spec, GradSync grad_sync, EmbeddingMove embedding) {
  spec.decisions = {.grad_sync = grad_sync, .embedding = embedding};
  return spec;
}
MeshSpec NotResharded(MeshSpec spec) {
  spec.reshard_after_forward = false;
  return spec;
}

struct Case {
  const char* name;
  MeshSpec mesh;
  bool grouped_heads_only = false;  // copies of KV heads: OPT has as many of these as heads
  bool few = false;                 // not every variant
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {"fsdp2", MeshOf({{Axis::kFsdp, 2}})},
      {"fsdp3", MeshOf({{Axis::kFsdp, 3}})},
      {"dp2_fsdp2", MeshOf({{Axis::kDp, 2}, {Axis::kFsdp, 2}})},
      {"tp2", MeshOf({{Axis::kTp, 2}})},
      {"tp2_whole_residual", MeshOf({{Axis::kTp, 2}}, ResidualSplit::kWhole)},
      {"tp4_two_kv_heads", MeshOf({{Axis::kTp, 2}, {Axis::kCopy, 2}}), true},
      {"2d", MeshOf({{Axis::kRow, 2}, {Axis::kTp, 2}}, ResidualSplit::kHidden)},
      {"2.5d", MeshOf({{Axis::kDepth, 2}, {Axis::kRow, 2}, {Axis::kTp, 2}}, ResidualSplit::kHidden)},
      {"fsdp2_tp2", MeshOf({{Axis::kFsdp, 2}, {Axis::kTp, 2}})},
      // Gradients and states are shared, weights stay gathered from a block's forward to its backward.
      {"dp2_fsdp2_not_resharded", NotResharded(MeshOf({{Axis::kDp, 2}, {Axis::kFsdp, 2}})), false, true},
      // What cost decides otherwise, both ways.
      {"fsdp3_grad_sync_per_step", Deciding(MeshOf({{Axis::kFsdp, 3}}), GradSync::kStep, EmbeddingMove::kTable), false,
       true},
      {"dp2_fsdp2_rows_looked_up",
       Deciding(MeshOf({{Axis::kDp, 2}, {Axis::kFsdp, 2}}), GradSync::kMicroBatch, EmbeddingMove::kRows), false, true},
      {"fsdp2_tp2_both", Deciding(MeshOf({{Axis::kFsdp, 2}, {Axis::kTp, 2}}), GradSync::kStep, EmbeddingMove::kRows),
       false, true},
      {"fsdp2_tp2_neither",
       Deciding(MeshOf({{Axis::kFsdp, 2}, {Axis::kTp, 2}}), GradSync::kMicroBatch, EmbeddingMove::kTable), false, true},
      {"2d_grad_sync_per_step",
       Deciding(MeshOf({{Axis::kRow, 2}, {Axis::kTp, 2}}, ResidualSplit::kHidden), GradSync::kStep,
                EmbeddingMove::kAuto),
       false, true},
      // A table over both axes that deal rows, its outer one too.
      {"rules_on_both_data_axes",
       WithRules(Deciding(MeshOf({{Axis::kDp, 2}, {Axis::kFsdp, 2}}), GradSync::kStep, EmbeddingMove::kRows),
                 {{"embed_tokens", "dp+fsdp,-"}}),
       false, true},
      // Columns instead of rows, weights of one kind whole, a weight over the axis of plain data parallelism.
      {"rules_on_fsdp2_dp2",
       WithRules(MeshOf({{Axis::kDp, 2}, {Axis::kFsdp, 2}}), {{R"(mlp\.|fc\d\.weight)", "replicate"},
                                                              {R"((q|k|v)_proj\.(weight|lora_A))", "-,fsdp"},
                                                              {R"(o_proj\.weight)", "dp,fsdp"}}),
       false, true},
      // The ffn whole on tensor ranks, the head's input dim over fsdp.
      {"rules_on_fsdp2_tp2", WithRules(MeshOf({{Axis::kFsdp, 2}, {Axis::kTp, 2}}),
                                       {{R"((gate|up|down)_proj\.(weight|lora_.)|fc\d\.(weight|lora_.))", "-,fsdp"},
                                        {R"(fc\d\.bias)", "replicate"},
                                        {"lm_head", "tp,fsdp"}})},
  };
  return cases;
}

struct Variant {
  const char* name;
  std::string config;
  Method method;
  double dropout;
  bool on_large_meshes = false, of_few = false;
};

std::vector<Variant> Variants() {
  return {{"full tied Llama", LlamaConfigText(true), Method::kFull, 0, true, true},
          {"full untied Llama", LlamaConfigText(false), Method::kFull, 0},
          {"LoRA with dropout", LlamaConfigText(true), Method::kLora, 0.1, true, true},
          {"LoRA on the head", LlamaConfigText(false), Method::kLoraWithHead, 0.1},
          {"full OPT", OptConfigText(true), Method::kFull, 0, true},
          {"full post-norm OPT", OptConfigText(false), Method::kFull, 0},
          {"LoRA OPT", OptConfigText(true), Method::kLora, 0.1, false, true}};
}

class MeshEquivalence : public testing::TestWithParam<int> {};

TEST_P(MeshEquivalence, TenStepsHaveTheLossesOfOneRank) {
  const Case& c = Cases()[static_cast<size_t>(GetParam())];
  for (const Variant& v : Variants()) {
    SCOPED_TRACE(fmt::format("{} on {}", v.name, c.name));
    // Ranks that outnumber the cores take long to meet.
    if ((c.mesh.mesh.ranks() > 4 && !v.on_large_meshes) || (c.few && !v.of_few)) continue;
    if (c.grouped_heads_only && v.config.find("OPT") != std::string::npos) continue;
    const int64_t rows = c.mesh.mesh.size(DataAxes(c.mesh.mesh));
    const RunSpec spec{.config = v.config,
                       .method = v.method,
                       .dropout = v.dropout,
                       .rows_per_micro_batch = rows,
                       .micro_batches = 2,
                       // AdamW divides by the gradient's own size: of a weight whose gradient is rounding noise (OPT's
                       // k_proj.bias by theory, units at the edge of relu) it makes steps of full length in a direction
                       // that the order of sums decides. 1e-5 is far below all other gradients here.
                       .adam_eps = 1e-5};
    const Curve one = Train(spec);
    RunSpec sharded = spec;
    sharded.mesh = c.mesh;
    const Curve mesh = TrainOnMesh(sharded);
    for (size_t s = 0; s < kSteps; ++s) {
      EXPECT_NEAR(mesh.loss[s], one.loss[s], 1e-5 * one.loss[s]) << "step " << s + 1;
      EXPECT_NEAR(mesh.norm[s], one.norm[s], 1e-4 * one.norm[s]) << "step " << s + 1;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, MeshEquivalence, testing::Range(0, static_cast<int>(Cases().size())),
                         [](const auto& info) {
                           std::string name = Cases()[static_cast<size_t>(info.param)].name;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

}  // namespace
}  // namespace temper::tiny
