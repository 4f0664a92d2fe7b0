// The exchange of tensor ranks for the feed-forward part of a block: decided by the
// bytes that a step sends either way, for many and few tokens, unless an option sets
// it. tests/equivalence/mesh_test.cc checks that losses are the same either way.
#include <gtest/gtest.h>

#include <algorithm>

#include "../tiny_run.h"
#include "model/lora_rewrite.h"

namespace temper::tiny::mlp_move_test {
namespace {

constexpr int64_t kRow = 64, kFfn = 128;

struct Compiled {
  std::vector<Decision> decisions;
  Bytes sent;  // by rank 0, per step

  const Decision* OfMlp() const {
    const auto it = std::find_if(decisions.begin(), decisions.end(), [](const Decision& d) { return d.what == "mlp"; });
    return it == decisions.end() ? nullptr : &*it;
  }
};

// Rank 0's step of a Llama in bf16 on `mesh`, with so many tokens for each group of tensor ranks in a micro-batch.
Compiled Compile(const Mesh& mesh, int64_t tokens, bool lora, const DecisionOptions& options, int micro_batches = 1,
                 ResidualSplit residual = ResidualSplit::kTokens, std::optional<int> gathered_blocks = {}) {
  const auto model = MakeModel(LlamaConfigText(/*tied=*/true));
  const int64_t all = tokens * mesh.size(DataAxes(mesh));
  const auto forward_of = [&](bool training) {
    return model->Forward({.dtype = DType::kBF16, .tokens = all, .row = kRow, .training = training});
  };
  Graph forward = forward_of(true), eval = forward_of(false);
  if (lora) {
    const auto targets = Must(ResolveLora(model->modules(), {.r = 4, .alpha = 8}));
    forward = AddLora(forward, targets, /*dropout=*/0.1);
    eval = AddLora(eval, targets, 0);
  } else {
    TrainAllWeights(&forward);
  }
  StepSpec spec{.micro_batches = micro_batches};
  spec.mesh = {.mesh = mesh, .residual = residual, .gathered_blocks = gathered_blocks, .decisions = options};
  Compiled compiled;
  CompiledPrograms made = Must(CompileGraphs(TrainAndEval(forward, eval), spec));
  compiled.sent = CostOfStep(made.programs.first()).sent;
  compiled.decisions = std::move(made.decisions);
  return compiled;
}

Mesh MeshOf(int fsdp, int tp) {
  Mesh mesh;
  mesh.set_size(Axis::kFsdp, fsdp);
  mesh.set_size(Axis::kTp, tp);
  return mesh;
}

TEST(MlpMove, TheCostOfEachWayIsTheBytesOfItsProgram) {
  for (const bool lora : {false, true}) {
    for (const int micro_batches : {1, 3}) {
      const Mesh mesh = MeshOf(2, 2);
      const Compiled activations = Compile(mesh, 256, lora, {.mlp = MlpMove::kActivations}, micro_batches);
      const Compiled weights = Compile(mesh, 256, lora, {.mlp = MlpMove::kWeights}, micro_batches);
      ASSERT_NE(activations.OfMlp(), nullptr);
      ASSERT_NE(weights.OfMlp(), nullptr);
      EXPECT_EQ(activations.OfMlp()->sent, activations.sent);
      EXPECT_EQ(weights.OfMlp()->sent, weights.sent);
      EXPECT_EQ(activations.OfMlp()->sent_otherwise, weights.sent);
      EXPECT_EQ(weights.OfMlp()->sent_otherwise, activations.sent);
      EXPECT_NE(activations.sent, weights.sent);
      EXPECT_EQ(weights.OfMlp()->reason, "requested");
    }
  }
}

// Four activations of T x D against, in full fine-tuning, two gathers of three D x F in bf16 and a reduction of these
// in f32: T against 3 F. Frozen weights have no gradients: 3/2 F.
TEST(MlpMove, WeightsAreMovedIfThatIsCheaperThanTokens) {
  const auto chosen = [](int64_t tokens, bool lora) {
    const Compiled compiled = Compile(MeshOf(1, 2), tokens, lora, {});
    EXPECT_LE(compiled.OfMlp()->sent, compiled.OfMlp()->sent_otherwise);
    EXPECT_EQ(compiled.OfMlp()->sent, compiled.sent);
    return compiled.OfMlp()->chosen;
  };
  EXPECT_EQ(chosen(kFfn, true), "activations");
  EXPECT_EQ(chosen(2 * kFfn, true), "weights");
  EXPECT_EQ(chosen(2 * kFfn, false), "activations");
  EXPECT_EQ(chosen(7 * kFfn / 2, false), "weights");
}

TEST(MlpMove, KeepsTheRunsDecisionUnlessAnOptionSetsIt) {
  const auto of = [](const DecisionOptions& options) { return Compile(MeshOf(1, 2), 64, true, options); };
  const Compiled kept = of({.kept = {{"mlp", "weights"}}});
  EXPECT_EQ(kept.OfMlp()->chosen, "weights");
  EXPECT_EQ(kept.OfMlp()->reason, "same as the resumed run");
  EXPECT_GT(kept.OfMlp()->sent, kept.OfMlp()->sent_otherwise);
  EXPECT_EQ(of({.mlp = MlpMove::kActivations, .kept = {{"mlp", "weights"}}}).OfMlp()->chosen, "activations");
  EXPECT_NE(DescribeDecisions(kept.decisions).find("mlp: weights, not activations: same as the resumed run"),
            std::string::npos);
}

TEST(MlpMove, IsNotDecidedIfTokensAreNotShared) {
  EXPECT_EQ(Compile(MeshOf(4, 1), 256, false, {}).OfMlp(), nullptr);
  EXPECT_EQ(Compile(MeshOf(1, 2), 256, false, {}, 1, ResidualSplit::kWhole).OfMlp(), nullptr);
}

// A weight cut along two axes is gathered along one after the other. Both gathers are repeated for the backward, so
// that no whole weight outlives its block, except the last block's, whose backward follows at once.
TEST(MlpMove, WeightsGatheredTwiceAreDroppedAfterTheForward) {
  const DecisionOptions weights = {.mlp = MlpMove::kWeights};
  const Bytes again = Compile(MeshOf(2, 2), 64, false, weights).sent;
  const Bytes kept = Compile(MeshOf(2, 2), 64, false, weights, 1, ResidualSplit::kTokens, kAllBlocks).sent;
  // Over tp the feed-forward part of two blocks of three, whole; over fsdp half of it, and half of the rest of a block.
  const double hidden = 64, attention = hidden * 16 * (2 * 4 + 2 * 2), mlp = 3 * hidden * kFfn;
  const double spared = 2 * 2 * (mlp / 2 + mlp / 2 / 2 + attention / 2 / 2 + 2 * hidden / 2);
  EXPECT_NEAR(static_cast<double>((again - kept).v), spared, 0.01 * spared);
}

}  // namespace
}  // namespace temper::tiny::mlp_move_test
