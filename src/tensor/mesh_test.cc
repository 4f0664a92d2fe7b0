#include "tensor/mesh.h"

#include <gtest/gtest.h>

#include <set>

namespace temper::mesh_test {
namespace {

Mesh Example() {
  Mesh mesh;
  mesh.set_size(Axis::kDp, 2);
  mesh.set_size(Axis::kFsdp, 3);
  mesh.set_size(Axis::kTp, 2);
  return mesh;
}

TEST(AxisSet, IsReadFromWhatItPrintsInMeshOrder) {
  for (const AxisSet& set : {AxisSet(), AxisSet(Axis::kTp), AxisSet{Axis::kTp, Axis::kDp}, kTensorAxes}) {
    const auto read = AxisSet::Parse(set.ToString());
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(*read, set);
  }
  EXPECT_EQ((AxisSet{Axis::kTp, Axis::kDp}.ToString()), "dp,tp");
  for (const char* text : {"wings", "dp,,tp", ",", " dp", "dp,tp,"}) EXPECT_FALSE(AxisSet::Parse(text).ok()) << text;
}

TEST(PartOf, CutsIntoPiecesThatDifferByOneAtMostAndCoverAll) {
  for (int64_t total : {0, 1, 2, 7, 8, 1000003}) {
    for (int64_t pieces : {1, 2, 3, 8}) {
      int64_t next = 0;
      for (int64_t i = 0; i < pieces; ++i) {
        const Part part = PartOf(total, pieces, i);
        EXPECT_EQ(part.begin, next);
        EXPECT_GE(part.count, total / pieces);
        EXPECT_LE(part.count, total / pieces + 1);
        next += part.count;
      }
      EXPECT_EQ(next, total);
    }
  }
}

TEST(Mesh, OfOneRankHasNoAxes) {
  EXPECT_EQ(Mesh().ranks(), 1);
  EXPECT_EQ(Mesh().axes(), AxisSet());
  EXPECT_EQ(Mesh().ToString(), "1 rank");
  EXPECT_EQ(Mesh().Group({Axis::kTp}, 0), std::vector<int>{0});
}

TEST(Mesh, VariesTheLastAxisFastest) {
  const Mesh mesh = Example();
  EXPECT_EQ(mesh.ranks(), 12);
  EXPECT_EQ(mesh.ToString(), "dp=2,fsdp=3,tp=2");
  int rank = 0;
  for (int dp = 0; dp < 2; ++dp) {
    for (int fsdp = 0; fsdp < 3; ++fsdp) {
      for (int tp = 0; tp < 2; ++tp, ++rank) {
        EXPECT_EQ(mesh.Coordinate(rank, Axis::kDp), dp);
        EXPECT_EQ(mesh.Coordinate(rank, Axis::kFsdp), fsdp);
        EXPECT_EQ(mesh.Coordinate(rank, Axis::kTp), tp);
        EXPECT_EQ(mesh.Coordinate(rank, Axis::kRow), 0) << "an axis of one rank";
      }
    }
  }
}

// Groups along any axes cut the ranks into disjoint sets; a rank's index is its place in its group.
TEST(Mesh, GroupsPartitionTheRanksInTheOrderOfTheirIndices) {
  const Mesh mesh = Example();
  for (const AxisSet axes : {AxisSet(), AxisSet(Axis::kDp), AxisSet(Axis::kFsdp), AxisSet{Axis::kDp, Axis::kTp},
                             AxisSet{Axis::kFsdp, Axis::kTp}, mesh.axes()}) {
    std::set<std::vector<int>> groups;
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      const std::vector<int> group = mesh.Group(axes, rank);
      EXPECT_EQ(static_cast<int>(group.size()), mesh.size(axes));
      EXPECT_EQ(group[static_cast<size_t>(mesh.IndexIn(axes, rank))], rank);
      for (int peer : group) EXPECT_EQ(mesh.Group(axes, peer), group);
      groups.insert(group);
    }
    EXPECT_EQ(static_cast<int>(groups.size()) * mesh.size(axes), mesh.ranks());
  }
  EXPECT_EQ(mesh.Group({Axis::kFsdp}, 7), (std::vector<int>{7, 9, 11}));
}

}  // namespace
}  // namespace temper::mesh_test
