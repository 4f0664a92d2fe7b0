#include "runtime/background_queue.h"

#include "base/check.h"

namespace temper {

BackgroundQueue::BackgroundQueue(size_t capacity, size_t events) : items_(capacity) {
  for (Item& item : items_) item.after.reserve(events);
  thread_ = std::thread([this] { Work(); });
}

BackgroundQueue::~BackgroundQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_one();
  thread_.join();
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
  issued_ = available_ = complete_ = 0;
}

void BackgroundQueue::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return stopping_ || complete_ < available_; });
    if (complete_ == available_) return;
    Item& item = items_[complete_];
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
      if (!status.ok()) failed_ = std::move(status);
    }
    ++complete_;
    done_.notify_one();
  }
}

}  // namespace temper
