#include "tensor/sharding.h"

#include <gtest/gtest.h>

#include <map>

namespace temper::sharding_test {
namespace {

Mesh FsdpAndTp() {
  Mesh mesh;
  mesh.set_size(Axis::kFsdp, 3);
  mesh.set_size(Axis::kTp, 2);
  return mesh;
}

Sharding Split(std::vector<Axis> rows, std::vector<Axis> columns) {
  Sharding p;
  p.dims[0] = std::move(rows);
  p.dims[1] = std::move(columns);
  return p;
}

TEST(Sharding, PrintsTheAxesOfEachDimOutermostFirst) {
  Sharding p = Split({Axis::kTp, Axis::kFsdp}, {});
  EXPECT_EQ(p.ToString(2), "tp+fsdp,-");
  EXPECT_EQ(p.ToString(1), "tp+fsdp");
  p.partial = Axis::kDp;
  p.varying = {Axis::kRow, Axis::kDepth};
  EXPECT_EQ(p.ToString(2), "tp+fsdp,- partial=dp varying=depth,row");
  EXPECT_EQ(p.DimOf(Axis::kFsdp), 0);
  EXPECT_EQ(p.DimOf(Axis::kDp), -1);
  EXPECT_EQ(p.split(), (AxisSet{Axis::kTp, Axis::kFsdp}));
  EXPECT_EQ(Split({Axis::kTp}, {Axis::kRow}).ToString(2), "tp,row");
}

TEST(Sharding, BoxesCutTheOuterAxisFirst) {
  // 7 rows: 3 and 4 for tp, each among three.
  const Mesh mesh = FsdpAndTp();
  const std::vector<std::pair<int64_t, int64_t>> want = {{0, 1}, {3, 1}, {1, 1}, {4, 1}, {2, 1}, {5, 2}};
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const Box box = BoxOf({7, 5}, Split({Axis::kTp, Axis::kFsdp}, {}), mesh, rank);
    EXPECT_EQ(box.begin, (Shape{want[static_cast<size_t>(rank)].first, 0})) << rank;
    EXPECT_EQ(box.shape, (Shape{want[static_cast<size_t>(rank)].second, 5})) << rank;
  }
}

TEST(Sharding, BoxesOfAllRanksHoldEveryElementAsOftenAsItIsCopied) {
  const Mesh mesh = FsdpAndTp();
  for (const Sharding& p : {Split({}, {}), Split({Axis::kFsdp}, {}), Split({Axis::kTp, Axis::kFsdp}, {}),
                            Split({Axis::kFsdp, Axis::kTp}, {}), Split({Axis::kTp}, {Axis::kFsdp})}) {
    for (const Shape& shape : {Shape{7, 5}, Shape{1, 2}, Shape{12, 6}}) {
      std::map<std::pair<int64_t, int64_t>, int> owners;
      for (int rank = 0; rank < mesh.ranks(); ++rank) {
        const Box box = BoxOf(shape, p, mesh, rank);
        for (int64_t i = 0; i < box.shape[0]; ++i) {
          for (int64_t k = 0; k < box.shape[1]; ++k) ++owners[{box.begin[0] + i, box.begin[1] + k}];
        }
      }
      EXPECT_EQ(static_cast<int64_t>(owners.size()), shape.elements());
      for (const auto& [element, count] : owners) EXPECT_EQ(count, mesh.ranks() / mesh.size(p.split()));
    }
  }
}

}  // namespace
}  // namespace temper::sharding_test
