// BackgroundQueue: threads that run kernels (collectives, transfers, moves) beside those of the thread that issues
// them. They begin in the order they are issued; with one thread each ends before the next begins.
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
    std::vector<Event*> after;     // of a device's streams: waited for before it is run
    Clock::time_point start, end;  // of its run, once it is complete
    bool done = false;
  };

  // `capacity`: the most items that are issued between two calls of Reset; `events`: the most that one is given;
  // `threads`: that run items, of which so many that follow each other go on at once.
  explicit BackgroundQueue(size_t capacity, size_t events = 0, int threads = 1);
  // Waits for what was issued.
  ~BackgroundQueue();
  BackgroundQueue(const BackgroundQueue&) = delete;
  BackgroundQueue& operator=(const BackgroundQueue&) = delete;

  // The addresses that `args` points to must stay until the item is complete. It is run when `after` have come, which
  // are marked already, and not again before it is complete.
  void Issue(Kernel* kernel, const KernelArgs& args, std::span<Event* const> after = {});
  // Returns when the first `count` items are complete; the first error among all that are done by then. After an
  // error no further one is begun.
  Status Wait(size_t count);
  // REQUIRES: count is complete.
  const Item& item(size_t index) const { return items_[index]; }
  // Forgets complete items. REQUIRES: all are.
  void Reset();

 private:
  void Work();

  std::vector<Item> items_;
  size_t issued_ = 0;  // of the issuing thread
  std::mutex mutex_;   // guards the rest
  std::condition_variable work_, done_;
  size_t available_ = 0, begun_ = 0;
  size_t complete_ = 0;  // that many, from the first on, are done
  bool stopping_ = false;
  Status failed_;
  std::vector<std::thread> threads_;
};

}  // namespace temper
