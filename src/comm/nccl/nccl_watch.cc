#include "comm/nccl/nccl_watch.h"

#include <chrono>
#include <utility>

#include "base/thread.h"

namespace temper {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{200};
// What a rank takes to end from when the cause is known, the 5 s of an abort that waits for a call among them. With 15
// s of patience: within 30 s.
constexpr std::chrono::seconds kEndingTakes{8};

}  // namespace

NcclWatch::NcclWatch(Look look, Abort abort, GiveUp give_up)
    : look_(std::move(look)),
      abort_(std::move(abort)),
      give_up_(std::move(give_up)),
      thread_(StartThread([this] { Run(); })) {}

NcclWatch::~NcclWatch() {
  Dismiss();
  thread_.join();
}

void NcclWatch::Dismiss() {
  {
    const std::lock_guard lock(mutex_);
    dismissed_ = true;
  }
  wake_.notify_all();
}

void NcclWatch::Run() {
  const auto dismissed = [this](auto within) {
    std::unique_lock lock(mutex_);
    return wake_.wait_for(lock, within, [this] { return dismissed_; });
  };
  Status cause;
  while (cause.ok()) {
    if (dismissed(kBetweenLooks)) return;
    cause = look_();
  }
  std::thread aborting = StartThread([this, &cause] {
    if (abort_(cause)) return;
    {
      const std::lock_guard lock(mutex_);
      stuck_ = true;
    }
    wake_.notify_all();
  });
  {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, kEndingTakes, [this] { return dismissed_ || stuck_; });
  }
  if (!dismissed(kBetweenLooks) && give_up_ != nullptr) give_up_(cause);
  aborting.join();
}

}  // namespace temper
