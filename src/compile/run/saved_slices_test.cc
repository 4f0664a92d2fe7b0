#include "compile/run/saved_slices.h"

#include <gtest/gtest.h>

#include <map>

namespace temper::saved_slices_test {
namespace {

// A fused projection of `heads` heads and one KV head, all of four rows.
std::vector<StoredWeight> Fused(int64_t heads, int64_t first_of_k) {
  const FileTensor qkv{.name = "qkv", .shape = {(heads + 2) * 4, 8}};
  return {{"q", {heads * 4, 8}, WeightSource::Rows(qkv, 0, heads * 4)},
          {"k", {4, 8}, WeightSource::Rows(qkv, first_of_k, 4)},
          {"v", {4, 8}, WeightSource::Rows(qkv, heads * 4 + 4, 4)}};
}

Mesh MeshOf(std::initializer_list<std::pair<Axis, int>> sizes) {
  Mesh mesh;
  for (const auto& [axis, size] : sizes) mesh.set_size(axis, size);
  return mesh;
}

// Queries over all tensor ranks, keys and values whole, and all over fsdp.
std::map<std::string, Sharding> ByHeads() {
  std::map<std::string, Sharding> shardings;
  shardings["q"].dims[0] = {Axis::kTp, Axis::kCopy, Axis::kFsdp};
  for (const char* name : {"k", "v"}) shardings[name].dims[0] = {Axis::kTp, Axis::kFsdp};
  return shardings;
}

TEST(SavedSlices, OfCopiesBesidePartsMakeUpTheTensor) {
  for (const auto& mesh :
       {MeshOf({}), MeshOf({{Axis::kCopy, 2}}), MeshOf({{Axis::kCopy, 4}}), MeshOf({{Axis::kDp, 2}, {Axis::kCopy, 2}}),
        MeshOf({{Axis::kFsdp, 3}, {Axis::kCopy, 2}}), MeshOf({{Axis::kFsdp, 7}})}) {
    const Status saved = CheckSavedSlices(Fused(4, 16), ByHeads(), mesh);
    EXPECT_TRUE(saved.ok()) << saved.message();
  }
}

TEST(SavedSlices, ThatOverlapOrLackRowsAreRefusedWithTensorAndNumbers) {
  const auto refused = [](const std::vector<StoredWeight>& weights) {
    return CheckSavedSlices(weights, ByHeads(), MeshOf({{Axis::kCopy, 2}})).message();
  };
  EXPECT_EQ(refused(Fused(4, 12)),
            "mesh copy=2: checkpoints of this run could not be saved: tensor qkv of shape [24, 8]: the slice [8, 8] at "
            "[8, 0] of rank 1 overlaps the slice [4, 8] at [12, 0] of rank 0. Split it over fewer ranks (less "
            "fsdp or tp, with dp beside it), or keep it whole (mesh.sharding: [['q', 'replicate']])");
  std::vector<StoredWeight> lacks = Fused(4, 16);
  lacks.pop_back();
  EXPECT_NE(refused(lacks).find("tensor qkv of shape [24, 8]: its 3 slices have 160 elements of 192"),
            std::string::npos)
      << refused(lacks);
}

}  // namespace
}  // namespace temper::saved_slices_test
