#include "runtime/background_queue.h"

#include "base/check.h"
#include "base/thread.h"

namespace temper {

BackgroundQueue::BackgroundQueue(size_t capacity, size_t events, int threads) : items_(capacity) {
  for (Item& item : items_) item.after.reserve(events);
  for (int t = 0; t < threads; ++t) threads_.push_back(StartThread([this] { Work(); }));
}

BackgroundQueue::~BackgroundQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void BackgroundQueue::Issue(Kernel* kernel, const KernelArgs& args, std::span<Event* const> after) {
  TEMPER_CHECK(issued_ < items_.size()) << issued_ << " items issued";
  items_[issued_].kernel = kernel;
  items_[issued_].args = args;
  items_[issued_].after.assign(after.begin(), after.end());
  ++issued_;
  {
    const std::lock_guard lock(mutex_);
    available_ = issued_;
  }
  work_.notify_one();
}

Status BackgroundQueue::Wait(size_t count) {
  std::unique_lock lock(mutex_);
  if (complete_ < count) {
    Kernel& last = *items_[count - 1].kernel;
    last.NoteAwaited(true);
    done_.wait(lock, [&] { return complete_ >= count; });
    last.NoteAwaited(false);
  }
  return failed_;
}

void BackgroundQueue::Reset() {
  const std::lock_guard lock(mutex_);
  TEMPER_CHECK(complete_ == issued_) << "reset with " << issued_ - complete_ << " items under way";
  for (size_t i = 0; i < issued_; ++i) items_[i].done = false;
  issued_ = available_ = begun_ = complete_ = 0;
}

void BackgroundQueue::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return stopping_ || begun_ < available_; });
    if (begun_ == available_) return;
    Item& item = items_[begun_++];
    if (failed_.ok()) {
      lock.unlock();
      Status status;
      for (Event* const event : item.after) {
        if (status.ok()) status = event->Synchronize();
      }
      item.start = Clock::now();
      if (status.ok()) status = item.kernel->Run(item.args);
      item.end = Clock::now();
      lock.lock();
      if (!status.ok() && failed_.ok()) failed_ = std::move(status);
    }
    item.done = true;
    while (complete_ < begun_ && items_[complete_].done) ++complete_;
    done_.notify_one();
  }
}

}  // namespace temper
