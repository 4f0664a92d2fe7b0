#include "comm/mpi/wire_plan.h"

#include <gtest/gtest.h>

namespace temper::wire_plan_test {
namespace {

CollectiveTensor Tensor(DType dtype, int64_t outer, int64_t inner, std::vector<int64_t> counts) {
  CollectiveTensor t{.dtype = dtype, .outer = outer, .inner = inner};
  for (const int64_t count : counts) {
    t.parts.push_back({t.whole, count});
    t.whole += count;
  }
  return t;
}

// Whatever the chunks, each element of each part is carried once, at a place of its own, aligned to its size.
TEST(WirePlan, ChunksCarryEveryElementOnce) {
  CollectivePlan plan;
  plan.tensors = {Tensor(DType::kBF16, 3, 5, {1, 2, 0}), Tensor(DType::kF32, 1, 1, {7, 1, 100}),
                  Tensor(DType::kF64, 2, 1, {0, 0, 9}), Tensor(DType::kBF16, 1, 1, {1, 1, 1})};
  for (const bool wide : {false, true}) {
    for (const int64_t chunk : {8, 64, 4096}) {
      const WirePlan wire(plan, 0, plan.tensors.size(), wide, chunk);
      for (int owner = 0; owner < 3; ++owner) {
        std::vector<std::vector<int>> seen;
        for (const CollectiveTensor& t : plan.tensors) seen.emplace_back(t.outer * t.row(owner), 0);
        std::vector<int> bytes(static_cast<size_t>(wire.bytes(owner)), 0);
        for (int64_t c = 0; c < wire.chunks(owner); ++c) {
          EXPECT_LE(wire.bytes_of_chunk(owner, c), chunk);
          EXPECT_GT(wire.bytes_of_chunk(owner, c), 0);
          wire.ForChunk(owner, c, [&](size_t t, int64_t begin, int64_t n, int64_t at) {
            const DType dtype = plan.tensors[t].dtype;
            const int64_t size = wide && dtype == DType::kBF16 ? 4 : SizeOf(dtype);
            EXPECT_EQ(at % size, 0);
            EXPECT_LE(at + n * size, wire.bytes_of_chunk(owner, c));
            for (int64_t i = begin; i < begin + n; ++i) ++seen[t][static_cast<size_t>(i)];
            for (int64_t i = at; i < at + n * size; ++i) ++bytes[static_cast<size_t>(c * chunk + i)];
          });
        }
        for (const auto& tensor : seen) {
          for (const int times : tensor) EXPECT_EQ(times, 1);
        }
        for (const int times : bytes) EXPECT_LE(times, 1);
      }
    }
  }
}

TEST(WirePlan, StretchesFollowTheRowsOfTheWhole) {
  const CollectiveTensor t = Tensor(DType::kF32, 3, 5, {1, 2, 4});  // member 1: rows of 10 in rows of 35
  std::vector<std::vector<int64_t>> got;
  ForStretches(t, 1, 7, 16, [&](int64_t at, int64_t i, int64_t n) { got.push_back({at, i, n}); });
  EXPECT_EQ(got, (std::vector<std::vector<int64_t>>{{5 + 7, 0, 3}, {35 + 5, 3, 10}, {70 + 5, 13, 3}}));
}

}  // namespace
}  // namespace temper::wire_plan_test
