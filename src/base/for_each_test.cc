#include "base/for_each.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <set>
#include <system_error>
#include <thread>
#include <vector>

#include "base/no_more_threads.h"

namespace temper::for_each_test {
namespace {

TEST(ForEach, CallsForEachItemOnce) {
  for (const int threads : {1, 2, 7}) {
    for (const int64_t n : {0, 1, 3, 1000}) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(n));
      ForEach(n, threads, [&](int64_t i) { ++calls[static_cast<size_t>(i)]; });
      for (const auto& c : calls) EXPECT_EQ(c, 1) << threads << " threads, " << n << " items";
    }
  }
}

// An item that waits for another one comes back only if a second thread takes that one.
TEST(ForEach, ItemsRunAtTheSameTime) {
  std::atomic<bool> second = false;
  ForEach(2, 2, [&](int64_t i) {
    if (i == 1) second = true;
    while (!second) std::this_thread::yield();
  });
  EXPECT_TRUE(second);
}

TEST(ForEach, DoesAllItselfWhereThereAreNoMoreThreads) {
  const NoMoreThreads none;
  EXPECT_THROW(std::thread([] {}), std::system_error) << "the limit works";
  std::set<std::thread::id> on;
  std::vector<int> calls(100);
  ForEach(100, 4, [&](int64_t i) {
    on.insert(std::this_thread::get_id());
    ++calls[static_cast<size_t>(i)];
  });
  EXPECT_EQ(on, std::set<std::thread::id>{std::this_thread::get_id()});
  EXPECT_EQ(calls, std::vector<int>(100, 1));
}

}  // namespace
}  // namespace temper::for_each_test
