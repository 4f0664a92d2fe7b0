#include "compile/run/mesh_options.h"

#include <gtest/gtest.h>

namespace temper::mesh_options_test {
namespace {

std::vector<Dim> Heads(int64_t heads, int64_t kv_heads) {
  return {{DimLabel::kHeads, heads}, {DimLabel::kKvHeads, kv_heads}};
}
const std::vector<Dim> kHeads = Heads(8, 2);

TEST(MeshOptions, ContextParallelRanksMultiplyTheOthers) {
  RunConfig config;
  config.mesh.cp = 2;
  config.mesh.tp = 2;
  EXPECT_EQ(RanksNamed(config), 4);
  const auto spec = MeshOf(config, 8, 3, kHeads);
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->mesh.ToString(), "fsdp=2,cp=2,tp=2") << "fsdp takes the remaining ranks";
  EXPECT_EQ(spec->mesh.Coordinate(spec->rank, Axis::kCp), 1);
}

TEST(MeshOptions, RefuseSizesThatAreNotTheNumberOfRanks) {
  RunConfig config;
  config.mesh.cp = 3;
  EXPECT_EQ(MeshOf(config, 2, 0, kHeads).status().message(),
            "mesh: dp=1 x fsdp=1 x cp=3 x tp=1 is 3, but the run has 2 ranks (nprocs, mpirun or srun say how many): "
            "3 ranks would do, or mesh.cp=2, or mesh.fsdp=2 alone");
  config.mesh.fsdp = 4;
  EXPECT_EQ(MeshOf(config, 6, 0, kHeads).status().message(),
            "mesh: dp=1 x fsdp=4 x cp=3 x tp=1 is 12, but the run has 6 ranks (nprocs, mpirun or srun say how "
            "many): mesh.fsdp=2 would use them all");
}

std::string MeshText(const RunConfig::Mesh& options, int ranks, const std::vector<Dim>& heads = Heads(8, 4)) {
  RunConfig config;
  config.mesh = options;
  const auto spec = MeshOf(config, ranks, 0, heads);
  return spec.ok() ? spec->mesh.ToString() : spec.status().message();
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(MeshOptions, UnstartedRanksGetAdviceOnNprocs) {
  const std::string remedy = "the run has 1 rank (nprocs, mpirun or srun say how many): start them on this machine ";
  EXPECT_HAS(MeshText({.fsdp = 2}, 1), remedy + "by --nprocs 2");
  EXPECT_HAS(MeshText({.tp = 2, .pp = 3}, 1), remedy + "by --nprocs 6");
}

TEST(MeshOptions, OpenSizesAreChosenSoThatAllRanksAreUsed) {
  EXPECT_EQ(MeshText({}, 1), "1 rank");
  EXPECT_EQ(MeshText({}, 4), "fsdp=4");
  EXPECT_EQ(MeshText({.tp = 2}, 8), "fsdp=4,tp=2");
  EXPECT_EQ(MeshText({.dp = 2}, 8), "dp=2,fsdp=4");
  EXPECT_EQ(MeshText({.dp = 2, .tp = 4}, 8), "dp=2,tp=4");
}

TEST(MeshOptions, ShardingHasItsGrades) {
  EXPECT_EQ(MeshText({.fsdp = 4}, 4), "fsdp=4") << "full";
  EXPECT_EQ(MeshText({.dp = 2, .fsdp = 2}, 4), "dp=2,fsdp=2") << "hybrid";
  EXPECT_EQ(MeshText({.dp = 4, .fsdp = 1}, 4), "dp=4") << "none";
  RunConfig config;
  config.mesh.reshard_after_forward = false;
  config.mesh.grad_sync = GradSync::kStep;
  config.mesh.embedding = EmbeddingMove::kRows;
  config.mesh.mlp = MlpMove::kWeights;
  config.mesh.sharding = {{"lm_head", "fsdp,-"}};
  const auto spec = MeshOf(config, 2, 1, Heads(8, 4));
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->gathered_blocks, kAllBlocks);
  EXPECT_EQ(spec->decisions.grad_sync, GradSync::kStep);
  EXPECT_EQ(spec->decisions.embedding, EmbeddingMove::kRows);
  EXPECT_EQ(spec->decisions.mlp, MlpMove::kWeights);
  ASSERT_EQ(spec->rules.size(), 1u);
  EXPECT_EQ(spec->rules[0].pattern, "lm_head");
}

TEST(MeshOptions, GatheredBlocksAreRefusedIfNothingIsGatheredAgain) {
  RunConfig config;
  EXPECT_FALSE(MeshOf(config, 2, 1, kHeads)->gathered_blocks.has_value());
  config.mesh.gathered_blocks = 3;
  EXPECT_EQ(MeshOf(config, 2, 1, kHeads)->gathered_blocks, 3);
  EXPECT_HAS(MeshText({.pp = 2, .gathered_blocks = 3}, 2), "mesh.gathered_blocks is 3: a pipeline's stages");
  EXPECT_HAS(MeshText({.reshard_after_forward = false, .gathered_blocks = 3}, 2), "keeps the weights of all blocks");
}

TEST(MeshOptions, SizesThatDoNotMatchTheRanksAreRefusedWithOnesThatDo) {
  EXPECT_HAS(MeshText({.fsdp = 3}, 4), "is 3, but the run has 4 ranks");
  EXPECT_HAS(MeshText({.fsdp = 3}, 4), "mesh.fsdp=4 would use them all");
  EXPECT_HAS(MeshText({.tp = 3}, 6), "sizes of tp that work: 2, 4, 8; on 6 ranks: 2");
  EXPECT_HAS(MeshText({.tp = 3}, 3, Heads(5, 1)), "sizes of tp that work: 5; on 3 ranks: none");
  EXPECT_HAS(MeshText({.tp = 16}, 16), "sizes of tp that work: 2, 4, 8");
  EXPECT_HAS(MeshText({.tp = 2, .pp = 3}, 16),
             "pp=3 x dp=1 x fsdp=2 x cp=1 x tp=2 is 12, but the run has 16 ranks (nprocs, mpirun or srun say how "
             "many): 12 ranks would do, or mesh.pp=2, or mesh.pp=4, or mesh.fsdp=16 alone");
}

TEST(MeshOptions, SizesWhoseProductOverflowsAreRefused) {
  constexpr int64_t kHuge = int64_t{1} << 32;
  RunConfig config;
  config.mesh = {.tp = kHuge, .pp = kHuge};  // 2^64, which is 0 in 64 bits
  EXPECT_EQ(RanksNamed(config), kMostRanks + 1);
  EXPECT_EQ(MeshOf(config, RanksNamed(config), 0, kHeads).status().message(),
            "mesh: 18446744073709551616 ranks are more than the largest mesh, 65536");
  config.mesh = {};
  config.machine.nprocs = kHuge + 2;
  EXPECT_EQ(RanksNamed(config), kMostRanks + 1);
  EXPECT_HAS(MeshText({.fsdp = kMostRanks}, 1), "is 65536, but the run has 1 rank");
}

// Blocks may have different numbers of heads.
TEST(MeshOptions, EveryNumberOfHeadsOfAModelHasToDivide) {
  const std::vector<Dim> both = {{DimLabel::kHeads, 16}, {DimLabel::kKvHeads, 8}, {DimLabel::kKvHeads, 2}};
  EXPECT_EQ(MeshText({.tp = 2}, 2, both), "tp=2");
  EXPECT_EQ(MeshText({.tp = 4}, 4, both),
            "mesh.tp: 16 heads, 8 KV heads and 2 KV heads do not divide among 4 ranks; sizes of tp that work: 2")
      << "copies of the 2 would be an axis that the 8 do not have";
  EXPECT_EQ(MeshText({.tp = 4, .tp_mode = TensorMode::k2d}, 4, both), "row=2,tp=2");
  EXPECT_HAS(MeshText({.tp = 16, .tp_mode = TensorMode::k2d}, 16, both), "sizes of tp that work: 4");
}

TEST(MeshOptions, FewerKvHeadsThanRanksAreCopiedWithANote) {
  EXPECT_EQ(MeshText({.tp = 8}, 8), "tp=4,copy=2");
  RunConfig config;
  for (const auto& [tp, note] :
       {std::pair{4, ""}, {8, "there are fewer KV heads than tensor-parallel ranks: each of the 4 is on 2 ranks"}}) {
    config.mesh.tp = tp;
    const auto spec = MeshOf(config, 8, 0, Heads(8, 4));
    ASSERT_TRUE(spec.ok()) << spec.status().message();
    EXPECT_EQ(NoteOn(spec->mesh), note);
  }
}

TEST(MeshOptions, SquaresThatDoNotDivideHeadsAreRefusedWithThoseThatDo) {
  const RunConfig::Mesh two_d{.tp = 9, .tp_mode = TensorMode::k2d},
      deep{.tp = 18, .tp_mode = TensorMode::k25d, .tp_depth = 2};
  EXPECT_EQ(MeshText(two_d, 9, Heads(8, 4)),
            "mesh.tp: 8 heads and 4 KV heads do not divide among 3 columns of ranks; sizes of tp that work: 4");
  EXPECT_HAS(MeshText(deep, 36, Heads(8, 4)), "sizes of tp that work: 8, 32");
  EXPECT_HAS(MeshText({.tp = 6, .tp_mode = TensorMode::k2d}, 6), "6 ranks do not form a square");
}

const std::vector<Dim> kEightHeads = Heads(8, 8);

std::string ErrorOf(const RunConfig& config, int ranks) {
  const auto spec = MeshOf(config, ranks, 0, kEightHeads);
  return spec.ok() ? "" : spec.status().message();
}

TEST(MeshOptions, StagesMultiplyTheOtherAxes) {
  RunConfig config;
  config.mesh.pp = 2;
  config.mesh.tp = 2;
  EXPECT_EQ(RanksNamed(config), 4);
  const auto spec = MeshOf(config, 8, 0, kEightHeads);
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->mesh.ToString(), "pp=2,fsdp=2,tp=2") << "fsdp takes the remaining ranks";
  config.mesh.fsdp = 1;
  EXPECT_EQ(
      ErrorOf(config, 8),
      "mesh: pp=2 x dp=1 x fsdp=1 x cp=1 x tp=2 is 4, but the run has 8 ranks (nprocs, mpirun or srun say how many): "
      "mesh.fsdp=2 would use them all");
}

TEST(MeshOptions, ChunksNeedAnInterleavedSchedule) {
  RunConfig config;
  config.mesh.pp = 2;
  EXPECT_EQ(MeshOf(config, 2, 0, kEightHeads)->pipeline.chunks_per_stage, 1);
  config.mesh.pp_chunks = 3;
  EXPECT_EQ(ErrorOf(config, 2), "mesh.pp_chunks is 3: it needs mesh.pp_schedule interleaved");
  config.mesh.pp_schedule = PipelineKind::kInterleaved;
  EXPECT_EQ(MeshOf(config, 2, 0, kEightHeads)->pipeline.chunks_per_stage, 3);
  config.mesh.pp_chunks.reset();
  EXPECT_EQ(MeshOf(config, 2, 0, kEightHeads)->pipeline.chunks_per_stage, 2);
  config.mesh.pp_layers = {1, 2, 3, 4};
  EXPECT_EQ(MeshOf(config, 2, 0, kEightHeads)->pipeline.layers, (std::vector<int>{1, 2, 3, 4}));
  config.mesh.pp = 1;
  EXPECT_EQ(ErrorOf(config, 1), "mesh.pp_layers needs a pipeline: set mesh.pp, too");
}

}  // namespace
}  // namespace temper::mesh_options_test
