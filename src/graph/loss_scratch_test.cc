#include "graph/ops/loss_scratch.h"

#include <gtest/gtest.h>

namespace temper::loss_scratch_test {
namespace {

// Whatever processor is at hand: matrix units take rows of bf16 32 at a time, all others in pairs.
TEST(LossScratch, ChunksCoverTheRowsInUnitsAndAreOfNearlyEqualSize) {
  for (const int64_t size : {1, 2, 6, 7, 31, 32, 64, 96, 512}) {
    const LossScratch s{.chunk = size};
    const int64_t unit = size % 32 == 0 ? 32 : size % 2 == 0 ? 2 : 1;
    for (int64_t supervised = 0; supervised <= 3 * size + 65; ++supervised) {
      SCOPED_TRACE(testing::Message() << supervised << " rows, " << size << " at once");
      const int64_t chunks = NumLossChunks(s, supervised);
      ASSERT_EQ(LossChunkBegin(s, supervised, 0), 0);
      ASSERT_EQ(LossChunkBegin(s, supervised, chunks), supervised);
      int64_t least = size, most = 0;
      for (int64_t i = 0; i < chunks; ++i) {
        const int64_t begin = LossChunkBegin(s, supervised, i), rows = LossChunkBegin(s, supervised, i + 1) - begin;
        ASSERT_EQ(begin % unit, 0) << "chunk " << i;
        ASSERT_GT(rows, 0) << "chunk " << i;
        least = std::min(least, (rows + unit - 1) / unit);
        most = std::max(most, (rows + unit - 1) / unit);
        ASSERT_LE(rows, size) << "chunk " << i;
      }
      ASSERT_LE(most - std::min(least, most), 1) << "units";
    }
  }
}

}  // namespace
}  // namespace temper::loss_scratch_test
