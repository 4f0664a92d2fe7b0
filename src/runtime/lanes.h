// Lanes: what a Program has run beside its kernels (program/waits.h), and who waits for whom. On the host each lane is
// a thread, those of the disk are two. On a device a lane is one of the device's streams; then waiting is enqueued,
// too, and the thread that walks the schedule goes on. Moves from and to the disk are a thread's everywhere: it waits
// for the device where it has to.
//
// On a device nothing says of a kernel in the foreground that it is done, so that a background instruction also comes
// after all kernels that were enqueued before it was issued.
//
// Thread rule: the thread that runs the executor. Nothing allocates after Prepare, but where there is a trace.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "device/device.h"
#include "device/kernel.h"
#include "program/waits.h"
#include "runtime/background_queue.h"

namespace temper {

// The stream that is lane `lane` of a device; nullopt for those of the disk.
std::optional<StreamUse> StreamOfLane(size_t lane);

class Lanes {
 public:
  using Clock = std::chrono::steady_clock;
  // Who runs an instruction of the foreground: the stream of kernels, or the host at once.
  enum class Foreground : uint8_t { kStream, kHost };

  // `device`: whose kernels the Program's are; nullptr: the host's. It outlives this.
  explicit Lanes(Device* device) : device_(device) {}
  // Waits for what was issued.
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  // Once. `issued`: background instructions of a run, by lane; `waits`: FindWaits of the Program.
  Status Prepare(const LaneCounts& issued, std::span<const LaneCounts> waits);

  // A run begins. With `timed`, TimeOf knows of each background instruction when it ran.
  Status Begin(bool timed);
  // Before an instruction of the foreground: it comes after the first `counts` of each lane.
  Status Await(Foreground who, const LaneCounts& counts);
  // After kernels were enqueued on the device's stream of kernels. `on_pinned`: they read or wrote the host's memory.
  void NoteEnqueued(bool on_pinned);
  // A background instruction; `args`: as BackgroundQueue::Issue.
  Status Issue(size_t lane, const LaneCounts& counts, Kernel* kernel, const KernelArgs& args);
  // Returns when all that was issued is done; the first error.
  Status Finish();

  struct Span {
    Clock::time_point start, end;
  };
  // Of the n-th instruction of a lane. REQUIRES: Begin(true), and Finish was OK.
  Result<Span> TimeOf(size_t lane, size_t n) const;

 private:
  static constexpr size_t kStream = kBackgroundLanes, kHost = kBackgroundLanes + 1, kWaiters = kBackgroundLanes + 2;
  struct Lane {
    size_t capacity = 0, issued = 0;
    std::unique_ptr<BackgroundQueue> queue;                    // of a lane that is a thread
    Stream* stream = nullptr;                                  // of a lane that is a stream
    std::vector<std::unique_ptr<Event>> done;                  // per instruction that is waited for; else nullptr
    std::vector<std::array<std::unique_ptr<Event>, 2>> timed;  // begin and end
  };
  Status AwaitAs(size_t waiter, const LaneCounts& counts);
  // All that waits from now on knows that the first `count` of `lane` are done.
  void NoteDone(size_t lane, uint32_t count);
  // An event behind all kernels that were enqueued so far; nullptr where there are none.
  Result<Event*> MarkKernels();

  Device* const device_;
  bool any_ = false, timed_ = false;
  // Events before the lanes, whose threads may still wait for them when they end.
  std::vector<std::unique_ptr<Event>> marks_;  // in the stream of kernels; as many as could be needed in a run
  std::unique_ptr<Event> origin_;
  std::array<Lane, kBackgroundLanes> lanes_;
  std::array<LaneCounts, kWaiters> awaited_ = {};  // per lane, the stream of kernels, and the host
  size_t marked_ = 0;
  bool enqueued_ = false;        // kernels, since the last mark
  bool host_must_wait_ = false;  // enqueued kernels touch the host's memory
  std::vector<Event*> after_;    // of what is being issued to a thread
  Clock::time_point origin_time_;
};

}  // namespace temper
