#include "runtime/background_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace temper::background_queue_test {
namespace {

class Calls final : public Kernel {
 public:
  explicit Calls(std::function<Status()> what) : what_(std::move(what)) {}
  Status Run(const KernelArgs&) override { return what_(); }

 private:
  const std::function<Status()> what_;
};

TEST(BackgroundQueue, OneThreadEndsEachItemBeforeTheNextBegins) {
  std::vector<int> order;
  std::vector<std::unique_ptr<Calls>> kernels;
  for (int k = 0; k < 20; ++k) {
    kernels.push_back(std::make_unique<Calls>([&order, k] {
      order.push_back(k);
      return OkStatus();
    }));
  }
  BackgroundQueue queue(kernels.size());
  for (int run = 0; run < 2; ++run) {
    for (const auto& kernel : kernels) queue.Issue(kernel.get(), {});
    EXPECT_TRUE(queue.Wait(kernels.size()).ok());
    queue.Reset();
  }
  for (int k = 0; k < 40; ++k) EXPECT_EQ(order[static_cast<size_t>(k)], k % 20);
}

// The first item ends when the second has begun; what waits for the first waits for it alone.
TEST(BackgroundQueue, OfTwoThreadsTheNextItemBeginsBeforeThisOneEnds) {
  std::mutex mutex;
  std::condition_variable changed;
  bool second_began = false, first_ended = false, released = false;
  Calls first([&] {
    std::unique_lock lock(mutex);
    const bool both = changed.wait_for(lock, std::chrono::seconds(60), [&] { return second_began; });
    first_ended = true;
    return both ? OkStatus() : IoError("alone");
  });
  Calls second([&] {
    std::unique_lock lock(mutex);
    second_began = true;
    changed.notify_all();
    const bool go = changed.wait_for(lock, std::chrono::seconds(60), [&] { return released; });
    return go ? OkStatus() : IoError("never released");
  });
  BackgroundQueue queue(2, 0, /*threads=*/2);
  queue.Issue(&first, {});
  queue.Issue(&second, {});
  EXPECT_TRUE(queue.Wait(1).ok());
  {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(first_ended);
    released = true;
  }
  changed.notify_all();
  EXPECT_TRUE(queue.Wait(2).ok());
}

// An item that is done before one issued earlier does not count for who waits for the earlier one.
TEST(BackgroundQueue, WaitingCountsFromTheFirstItemOn) {
  std::mutex mutex;
  std::condition_variable changed;
  bool second_ended = false;
  std::atomic<bool> first_ended = false;
  Calls first([&] {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, std::chrono::seconds(60), [&] { return second_ended; });
    first_ended = true;
    return OkStatus();
  });
  Calls second([&] {
    const std::lock_guard lock(mutex);
    second_ended = true;
    changed.notify_all();
    return OkStatus();
  });
  BackgroundQueue queue(2, 0, /*threads=*/2);
  for (int run = 0; run < 50; ++run) {
    first_ended = second_ended = false;
    queue.Issue(&first, {});
    queue.Issue(&second, {});
    EXPECT_TRUE(queue.Wait(1).ok());
    EXPECT_TRUE(first_ended);
    EXPECT_TRUE(queue.Wait(2).ok());
    queue.Reset();
  }
}

TEST(BackgroundQueue, AfterAnErrorNoFurtherItemIsBegun) {
  for (const int threads : {1, 2}) {
    std::atomic<int> run = 0;
    Calls fails([] { return IoError("the disk is gone"); });
    Calls counts([&] {
      ++run;
      return OkStatus();
    });
    BackgroundQueue queue(100, 0, threads);
    queue.Issue(&fails, {});
    EXPECT_EQ(queue.Wait(1).message(), "the disk is gone");
    for (int k = 1; k < 100; ++k) queue.Issue(&counts, {});
    EXPECT_EQ(queue.Wait(100).message(), "the disk is gone");
    EXPECT_EQ(run, 0);
  }
}

}  // namespace
}  // namespace temper::background_queue_test
