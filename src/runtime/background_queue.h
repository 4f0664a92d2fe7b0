// BackgroundQueue: threads that run kernels (collectives, transfers, moves) beside those of the thread that issues
// them. Items begin in the order of issue; with one thread each ends before the next begins.
//
// Thread rule: one thread issues and waits. Nothing allocates after the constructor.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "device/device.h"
#include "device/kernel.h"

namespace temper {

class BackgroundQueue {
 public:
  using Clock = std::chrono::steady_clock;
  struct Item {
    Kernel* kernel = nullptr;
    KernelArgs args = {};
    std::vector<Event*> after;     // of a device's streams: awaited before it runs
    Clock::time_point start, end;  // of its run, once it is complete
    bool done = false;
  };

  // `capacity`: the most items issued between two calls of Reset; `events`: the most that one item has; `threads`: they
  // run items, so this many consecutive items may run at once.
  explicit BackgroundQueue(size_t capacity, size_t events = 0, int threads = 1);
  // Waits for all issued items.
  ~BackgroundQueue();
  BackgroundQueue(const BackgroundQueue&) = delete;
  BackgroundQueue& operator=(const BackgroundQueue&) = delete;

  // The addresses that `args` points to must stay valid until the item is complete. It runs when `after` have been
  // reached, which are marked already; they are not marked again before it is complete.
  void Issue(Kernel* kernel, const KernelArgs& args, std::span<Event* const> after = {});
  // Returns when the first `count` items are complete; the first error among all that are done by then. After an error
  // no further item begins.
  Status Wait(size_t count);
  // REQUIRES: count is complete.
  const Item& item(size_t index) const { return items_[index]; }
  // Forgets complete items. REQUIRES: all are.
  void Reset();

 private:
  void Work();

  std::vector<Item> items_;
  size_t issued_ = 0;  // used by the issuing thread
  std::mutex mutex_;   // guards the rest
  std::condition_variable work_, done_;
  size_t available_ = 0, begun_ = 0;
  size_t complete_ = 0;  // the first this many are done
  bool stopping_ = false;
  Status failed_;
  std::vector<std::thread> threads_;
};

}  // namespace temper
