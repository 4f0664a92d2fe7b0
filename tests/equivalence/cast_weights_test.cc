// Bf16 weights that are cast from their f32 masters for each use (compile/memory/cast_weights.h) give the bits of
// stored ones: losses of training and evaluation, gradient norms, masters and states; on one rank and on meshes.
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/named_ops.h"
#include "thread_ranks.h"

namespace temper::cast_weights_test {
namespace {

using tiny::RunSpec;
using tiny::TinyRun;

// Whether a run in bf16 may cast it.
bool IsTrainedMatrix(const Buffer& b) {
  return b.role == Role::kWeight && b.trainable && b.type.shape.rank() > 1;
}

struct Outcome {
  std::vector<float> losses;
  std::vector<double> norms;
  std::map<std::string, std::vector<std::byte>> state;
  int matrices_in_bf16 = 0;
};

Outcome Train(const RunSpec& spec) {
  TinyRun run(spec);
  Outcome o;
  for (uint64_t step = 0; step < 3; ++step) {
    tiny::Batch batch = run.MakeBatch(step), held_out = run.MakeBatch(100);
    run.Step(batch);
    o.losses.insert(o.losses.end(), run.losses().begin(), run.losses().end());
    o.norms.push_back(run.grad_norm());
    run.Evaluate(held_out);
    o.losses.insert(o.losses.end(), run.losses().begin(), run.losses().end());
  }
  o.state = run.State();
  for (const Buffer& b : run.train().buffers) {
    o.matrices_in_bf16 += IsTrainedMatrix(b) && b.type.dtype == DType::kBF16;
  }
  return o;
}

struct Case {
  std::string name;
  RunSpec spec;
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

std::vector<Case> Cases() {
  const auto on = [](std::initializer_list<std::pair<Axis, int>> sizes, RunSpec spec = {}) {
    for (const auto& [axis, size] : sizes) spec.mesh.mesh.set_size(axis, size);
    spec.rows_per_micro_batch = spec.mesh.mesh.size(DataAxes(spec.mesh.mesh));
    return spec;
  };
  const auto stages = [&](PipelineKind kind, std::optional<int> gathered_blocks) {
    RunSpec spec = on({{Axis::kPp, 2}, {Axis::kFsdp, 2}}, {.recompute = Recompute::kBlock});
    spec.mesh.pipeline.kind = kind;
    spec.mesh.gathered_blocks = gathered_blocks;
    return spec;
  };
  RunSpec reduced_once = on({{Axis::kFsdp, 2}}, {.config = tiny::LlamaConfigText(false)});
  reduced_once.mesh.decisions.grad_sync = GradSync::kStep;
  const UpdateRule* const sgd = UpdateRuleOf(Op::kSgd);
  const auto untied = tiny::LlamaConfigText(false);
  return {
      {"one_rank", {}},
      {"recomputed_within_a_limit", {.config = untied, .recompute = Recompute::kAuto, .memory = {.device = KiB(2048)}}},
      {"one_micro_batch", {.config = untied, .micro_batches = 1}},
      {"one_micro_batch_not_clipped", {.micro_batches = 1, .recompute = Recompute::kSelective, .max_norm = 0}},
      {"biases_and_learned_positions", {.config = tiny::OptConfigText(false), .max_norm = 0}},
      {"scaled_embedding", {.config = tiny::Gemma3ConfigText(), .noise = 5}},
      {"transposed", {.config = tiny::Gpt2ConfigText()}},
      {"no_states", {.optimizer = sgd, .settings = UpdateSettings(Op::kSgd, {{"momentum", 0}})}},
      {"gradients_at_the_host", {.memory = {.gradients = Tier::kHost}}},
      {"fsdp2", on({{Axis::kFsdp, 2}}, {.recompute = Recompute::kBlock})},
      {"fsdp2_not_clipped", on({{Axis::kFsdp, 2}}, {.micro_batches = 1, .max_norm = 0})},
      {"fsdp2_reduced_once", reduced_once},
      {"dp2_tp2", on({{Axis::kDp, 2}, {Axis::kTp, 2}})},
      {"cp2", on({{Axis::kCp, 2}})},
      {"pp2_fsdp2", stages(PipelineKind::kOneForwardOneBackward, std::nullopt)},
      {"pp2_fsdp2_gathered_once", stages(PipelineKind::kZeroBubble, kAllBlocks)},
  };
}

class CastWeights : public testing::TestWithParam<Case> {};

TEST_P(CastWeights, GiveTheBitsOfStoredOnes) {
  RunSpec spec = GetParam().spec;
  spec.dtype = DType::kBF16;
  spec.through_text = true;
  spec.memory.matrices = TrainedMatrices::kStored;
  const auto stored = tiny::OnThreadRanks<Outcome>(spec, Train);
  spec.memory.matrices = TrainedMatrices::kCast;
  const auto cast = tiny::OnThreadRanks<Outcome>(spec, Train);
  for (size_t rank = 0; rank < stored.size(); ++rank) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    EXPECT_GT(stored[rank].matrices_in_bf16, 0);
    EXPECT_EQ(cast[rank].matrices_in_bf16, 0);
    EXPECT_EQ(cast[rank].losses, stored[rank].losses);
    EXPECT_EQ(cast[rank].norms, stored[rank].norms);
    ASSERT_EQ(cast[rank].state.size(), stored[rank].state.size());
    for (const auto& [name, bytes] : stored[rank].state) EXPECT_TRUE(cast[rank].state.at(name) == bytes) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Runs, CastWeights, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// Matrices of a segment are the only copies at any time: no more than a block's, or the head's.
TEST(CastWeightsOfARun, TakeTwoBytesAParameterLessButForABlock) {
  RunSpec spec{.config = tiny::LlamaConfigText(/*tied=*/false, /*hidden=*/128, /*blocks=*/8, /*vocab=*/400),
               .dtype = DType::kBF16};
  for (const double max_norm : {1.0, 0.0}) {
    for (const int micro_batches : {1, 2}) {
      SCOPED_TRACE(fmt::format("max_norm {}, {} micro-batches", max_norm, micro_batches));
      spec.max_norm = max_norm;
      spec.micro_batches = micro_batches;
      spec.memory.matrices = TrainedMatrices::kStored;
      const TinyRun stored(spec);
      spec.memory.matrices = TrainedMatrices::kCast;
      const TinyRun cast(spec);
      Bytes saved{}, block{}, head{};
      for (const Buffer& b : stored.train().buffers) {
        if (!IsTrainedMatrix(b)) continue;
        saved += b.type.bytes();
        if (b.name.find("layers.0.") != std::string::npos) block += b.type.bytes();
        if (b.name == "lm_head.weight") head = b.type.bytes();
      }
      EXPECT_GT(saved, block * 8);
      const Bytes less = stored.train().arena_bytes - cast.train().arena_bytes;
      EXPECT_GE(less, saved - std::max(block, head));
      EXPECT_LE(less, saved);
      const auto held = [](const TinyRun& run) { return run.train().peak.weights + run.train().peak.optimizer; };
      EXPECT_EQ(held(stored) - held(cast), saved);
    }
  }
}

}  // namespace
}  // namespace temper::cast_weights_test
