#include "train/mesh_options.h"

#include <gtest/gtest.h>

namespace temper {
namespace {

constexpr HeadCounts kHeads{.heads = 8, .kv_heads = 2};

TEST(MeshOptions, ContextParallelRanksStandBesideAllOthers) {
  RunConfig config;
  config.mesh.cp = 2;
  config.mesh.tp = 2;
  EXPECT_EQ(RanksNamed(config), 4);
  const auto spec = MeshOf(config, 8, 3, kHeads);
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->mesh.ToString(), "fsdp=2,cp=2,tp=2") << "fsdp takes what the others leave";
  EXPECT_EQ(spec->mesh.Coordinate(spec->rank, Axis::kCp), 1);
}

TEST(MeshOptions, RefuseSizesThatAreNotTheNumberOfRanks) {
  RunConfig config;
  config.mesh.cp = 3;
  EXPECT_EQ(MeshOf(config, 2, 0, kHeads).status().message(),
            "mesh: dp=1 x fsdp=1 x cp=3 x tp=1 is 3, but the run has 2 rank(s) (nprocs, mpirun or srun say how many): "
            "3 ranks would do, or mesh.fsdp=2 alone");
  config.mesh.fsdp = 4;
  EXPECT_EQ(MeshOf(config, 6, 0, kHeads).status().message(),
            "mesh: dp=1 x fsdp=4 x cp=3 x tp=1 is 12, but the run has 6 rank(s) (nprocs, mpirun or srun say how "
            "many): mesh.fsdp=2 would use them all");
}

}  // namespace
}  // namespace temper
