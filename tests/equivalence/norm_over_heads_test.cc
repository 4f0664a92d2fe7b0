// A norm over all heads together (OLMo 2 and 3, of q and of k; Granite 4, of Mamba-2's one group): tensor ranks that
// would split it are refused with its name; on the meshes that the refusal names, the losses are those of one rank.
#include <gtest/gtest.h>

#include "thread_ranks.h"

namespace temper::tiny::norm_over_heads_test {
namespace {

constexpr int kSteps = 3;

std::string OlmoConfigText(int version) {
  return fmt::format(R"({{"architectures": ["Olmo{}ForCausalLM"], "vocab_size": 160, "hidden_size": 64,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
      "max_position_embeddings": 256, "sliding_window": 20, "pad_token_id": 0}})",
                     version);
}

MeshSpec MeshOf(std::initializer_list<std::pair<Axis, int>> sizes) {
  MeshSpec spec;
  for (const auto& [axis, size] : sizes) spec.mesh.set_size(axis, size);
  return spec;
}

std::vector<double> LossesOf(const RunSpec& spec) {
  TinyRun run(spec);
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    Batch batch = run.MakeBatch(static_cast<uint64_t>(step));
    run.Step(batch, 1e-3);
    losses.push_back(run.loss_sum() / static_cast<double>(batch.supervised));
  }
  return losses;
}

TEST(NormOverHeads, IsComputedOnTheMeshesThatItsRefusalNames) {
  for (const Method method : {Method::kFull, Method::kLora}) {
    RunSpec spec{.config = OlmoConfigText(3), .method = method, .rows_per_micro_batch = 2, .micro_batches = 2};
    const std::vector<double> expected = LossesOf(spec);
    EXPECT_NE(expected.front(), expected.back());
    for (const MeshSpec& mesh :
         {MeshOf({{Axis::kFsdp, 2}}), MeshOf({{Axis::kCp, 2}}), MeshOf({{Axis::kPp, 2}}), MeshOf({{Axis::kDp, 2}})}) {
      SCOPED_TRACE(mesh.mesh.ToString());
      spec.mesh = mesh;
      for (const std::vector<double>& losses : OnThreadRanks<std::vector<double>>(spec, LossesOf)) {
        for (int i = 0; i < kSteps; ++i) {
          EXPECT_NEAR(losses[static_cast<size_t>(i)], expected[static_cast<size_t>(i)], 1e-5) << "step " << i;
        }
      }
    }
  }
}

TEST(NormOverHeads, ThatTensorRanksWouldSplitIsRefusedByName) {
  for (const int version : {2, 3}) {
    const std::unique_ptr<Model> model = MakeModel(OlmoConfigText(version));
    for (const ResidualSplit residual : {ResidualSplit::kTokens, ResidualSplit::kWhole, ResidualSplit::kHidden}) {
      MeshSpec mesh = MeshOf({{Axis::kTp, 2}});
      if (residual == ResidualSplit::kHidden) mesh.mesh.set_size(Axis::kRow, 2);
      mesh.residual = residual;
      Graph forward = model->Forward({.tokens = 128, .row = 32});
      TrainAllWeights(&forward);
      const auto refused = CompileGraphs(TrainAndEval(forward, forward), {.mesh = mesh});
      ASSERT_FALSE(refused.ok());
      const std::string message = refused.status().message();
      EXPECT_NE(
          message.find("layers.0.self_attn.q_norm.weight scales a norm over all heads together, which 'tp' splits"),
          std::string::npos)
          << message;
      EXPECT_NE(message.find("Use mesh.fsdp, mesh.cp, mesh.pp or mesh.dp instead of mesh.tp"), std::string::npos)
          << message;
    }
  }
}

// b and c are those of all heads, and the recurrence runs along whole rows.
TEST(NormOverHeads, MeshesThatWouldCutMamba2sOneGroupOrItsRowsAreRefusedByName) {
  const std::unique_ptr<Model> model = MakeModel(GraniteHybridConfigText());
  for (const auto& [axis, expected] :
       {std::pair{Axis::kTp,
                  "the groups of heads of a Mamba-2 layer, 1, do not divide among 2 ranks of tp: use mesh.fsdp"},
        {Axis::kCp, "use mesh.fsdp, mesh.dp or mesh.pp instead of mesh.cp"}}) {
    Graph forward = model->Forward({.tokens = 128, .row = 32});
    TrainAllWeights(&forward);
    const auto refused = CompileGraphs(TrainAndEval(forward, forward), {.mesh = MeshOf({{axis, 2}})});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.status().message().find(expected), std::string::npos) << refused.status().message();
  }
}

}  // namespace
}  // namespace temper::tiny::norm_over_heads_test
