#include "backend/cpu/team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace temper {
namespace {

TEST(Team, VisitsEachItemOnceOnAnyNumberOfThreads) {
  for (int threads : {1, 2, 3, 7}) {
    for (int64_t n : {0, 1, 2, 3, 8, 100}) {
      std::vector<std::atomic<int>> visits(n);
      ParallelFor(threads, n, [&](int64_t i) { ++visits[i]; });
      for (const auto& v : visits) EXPECT_EQ(v, 1);
    }
  }
}

TEST(Team, BlocksBeginAtMultiplesWhateverTheThreads) {
  for (int threads : {1, 2, 5}) {
    std::vector<std::atomic<int>> visits(1003);
    ParallelBlocks(threads, 1003, 64, [&](int64_t begin, int64_t end) {
      EXPECT_EQ(begin % 64, 0);
      EXPECT_TRUE(end - begin == 64 || end == 1003);
      for (int64_t i = begin; i < end; ++i) ++visits[i];
    });
    for (const auto& v : visits) EXPECT_EQ(v, 1);
  }
}

}  // namespace
}  // namespace temper
