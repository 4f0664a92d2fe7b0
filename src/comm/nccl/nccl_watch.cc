#include "comm/nccl/nccl_watch.h"

#include <chrono>
#include <utility>

namespace temper {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{200};
// What a rank takes that was let go until it says so. With 15 s of patience and 5 s for an abort: within 30 s.
constexpr std::chrono::seconds kEndingTakes{8};

}  // namespace

NcclWatch::NcclWatch(Look look, Abort abort, GiveUp give_up)
    : look_(std::move(look)), abort_(std::move(abort)), give_up_(std::move(give_up)), thread_([this] { Run(); }) {}

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
  const bool aborted = abort_(cause);
  if (dismissed(aborted ? kEndingTakes : kBetweenLooks) || give_up_ == nullptr) return;
  give_up_(cause);
}

}  // namespace temper
