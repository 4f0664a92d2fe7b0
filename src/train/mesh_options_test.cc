#include "train/mesh_options.h"

#include <gtest/gtest.h>

namespace temper {
namespace {

const HeadCounts kHeads{.heads = 8, .kv_heads = 8};

std::string ErrorOf(const RunConfig& config, int ranks) {
  const auto spec = MeshOf(config, ranks, 0, kHeads);
  return spec.ok() ? "" : spec.status().message();
}

TEST(MeshOptions, StagesMultiplyTheOtherAxes) {
  RunConfig config;
  config.mesh.pp = 2;
  config.mesh.tp = 2;
  EXPECT_EQ(RanksNamed(config), 4);
  const auto spec = MeshOf(config, 8, 0, kHeads);
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->mesh.ToString(), "pp=2,fsdp=2,tp=2") << "what is left is fsdp";
  config.mesh.fsdp = 1;
  EXPECT_EQ(ErrorOf(config, 8),
            "mesh: pp=2 x dp=1 x fsdp=1 x tp=2 is 4, but the run has 8 rank(s) (nprocs, mpirun or srun say how many): "
            "mesh.fsdp=2 would use them all");
}

TEST(MeshOptions, SchedulesHaveTheChunksThatAreTheirs) {
  RunConfig config;
  config.mesh.pp = 2;
  EXPECT_EQ(MeshOf(config, 2, 0, kHeads)->pipeline.chunks_per_stage, 1);
  config.mesh.pp_chunks = 3;
  EXPECT_EQ(ErrorOf(config, 2), "mesh.pp_chunks is 3: it belongs to mesh.pp_schedule interleaved");
  config.mesh.pp_schedule = PipelineKind::kInterleaved;
  EXPECT_EQ(MeshOf(config, 2, 0, kHeads)->pipeline.chunks_per_stage, 3);
  config.mesh.pp_chunks.reset();
  EXPECT_EQ(MeshOf(config, 2, 0, kHeads)->pipeline.chunks_per_stage, 2);
  config.mesh.pp_layers = {1, 2, 3, 4};
  EXPECT_EQ(MeshOf(config, 2, 0, kHeads)->pipeline.layers, (std::vector<int>{1, 2, 3, 4}));
  config.mesh.pp = 1;
  EXPECT_EQ(ErrorOf(config, 1), "mesh.pp_layers says what the stages of a pipeline have: give mesh.pp, too");
}

}  // namespace
}  // namespace temper
