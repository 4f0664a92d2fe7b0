// What the mesh may change of a run is the order of sums: ten steps on every mesh have the losses and gradient norms of
// one rank, within what that order does in f32.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
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

struct Case {
  const char* name;
  MeshSpec mesh;
  bool grouped_heads_only = false;  // copies of KV heads: OPT has as many of these as heads
  int micro_batches = 2;
  Recompute recompute = Recompute::kNone;
  bool few_variants = false;
};

// `layers`: of three blocks.
Case Pipeline(const char* name, std::initializer_list<std::pair<Axis, int>> sizes, PipelineKind kind,
              std::vector<int> layers = {}, Recompute recompute = Recompute::kNone) {
  MeshSpec mesh = MeshOf(sizes);
  const bool interleaved = kind == PipelineKind::kInterleaved;
  mesh.pipeline = {.kind = kind, .chunks_per_stage = interleaved ? 2 : 1, .layers = std::move(layers)};
  return {name, mesh, /*grouped_heads_only=*/false, /*micro_batches=*/4, recompute, /*few_variants=*/true};
}

const std::vector<Case>& Cases() {
  constexpr auto k1f1b = PipelineKind::kOneForwardOneBackward, kZeroBubble = PipelineKind::kZeroBubble;
  constexpr auto kInterleaved = PipelineKind::kInterleaved, kGpipe = PipelineKind::kGpipe;
  constexpr auto kAgain = Recompute::kBlock;
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
      {"pp2", MeshOf({{Axis::kPp, 2}}), false, 4},
      Pipeline("pp2_recompute", {{Axis::kPp, 2}}, k1f1b, {2, 1}, kAgain),
      Pipeline("pp2_gpipe", {{Axis::kPp, 2}}, kGpipe),
      Pipeline("pp2_interleaved", {{Axis::kPp, 2}}, kInterleaved, {0, 1, 1, 1}),
      Pipeline("pp2_zero_bubble", {{Axis::kPp, 2}}, kZeroBubble),
      Pipeline("pp4", {{Axis::kPp, 4}}, k1f1b, {1, 1, 1, 0}),
      Pipeline("pp3_zero_bubble_recompute", {{Axis::kPp, 3}}, kZeroBubble, {}, kAgain),
      Pipeline("pp2_dp2", {{Axis::kPp, 2}, {Axis::kDp, 2}}, k1f1b),
      Pipeline("pp2_fsdp2_zero_bubble", {{Axis::kPp, 2}, {Axis::kFsdp, 2}}, kZeroBubble),
      Pipeline("pp2_fsdp2_tp2", {{Axis::kPp, 2}, {Axis::kFsdp, 2}, {Axis::kTp, 2}}, k1f1b),
  };
  return cases;
}

struct Variant {
  const char* name;
  std::string config;
  Method method;
  double dropout;
  bool on_large_meshes = false;
};

std::vector<Variant> Variants() {
  return {{"full tied Llama", LlamaConfigText(true), Method::kFull, 0, true},
          {"full untied Llama", LlamaConfigText(false), Method::kFull, 0},
          {"LoRA with dropout", LlamaConfigText(true), Method::kLora, 0.1, true},
          {"LoRA on the head", LlamaConfigText(false), Method::kLoraWithHead, 0.1},
          {"full OPT", OptConfigText(true), Method::kFull, 0, true},
          {"full post-norm OPT", OptConfigText(false), Method::kFull, 0},
          {"LoRA OPT", OptConfigText(true), Method::kLora, 0.1}};
}

// Those of one rank, made once for each batch: no mesh and no recomputation changes them.
const Curve& OneRank(const RunSpec& spec) {
  static std::map<std::string, Curve> known;
  const auto [it, fresh] = known.try_emplace(fmt::format("{} {} {} {} {}", spec.config, static_cast<int>(spec.method),
                                                         spec.dropout, spec.rows_per_micro_batch, spec.micro_batches));
  if (!fresh) return it->second;
  RunSpec alone = spec;
  alone.threads = 1;
  it->second = Train(alone);
  return it->second;
}

class MeshEquivalence : public testing::TestWithParam<int> {};

TEST_P(MeshEquivalence, TenStepsHaveTheLossesOfOneRank) {
  const Case& c = Cases()[static_cast<size_t>(GetParam())];
  for (const Variant& v : Variants()) {
    SCOPED_TRACE(fmt::format("{} on {}", v.name, c.name));
    // Ranks that outnumber the cores take long to meet.
    if ((c.mesh.mesh.ranks() > 4 || c.few_variants) && !v.on_large_meshes) continue;
    if (c.grouped_heads_only && v.config.find("OPT") != std::string::npos) continue;
    const int64_t rows = c.mesh.mesh.size(DataAxes(c.mesh.mesh));
    const RunSpec spec{.config = v.config,
                       .method = v.method,
                       .dropout = v.dropout,
                       .rows_per_micro_batch = rows,
                       .micro_batches = c.micro_batches,
                       // AdamW divides by the gradient's own size: of a weight whose gradient is rounding noise (OPT's
                       // k_proj.bias by theory, units at the edge of relu) it makes steps of full length in a direction
                       // that the order of sums decides. 1e-5 is far below all other gradients here.
                       .adam_eps = 1e-5};
    const Curve& one = OneRank(spec);
    RunSpec sharded = spec;
    sharded.recompute = c.recompute;
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
