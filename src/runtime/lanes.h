// Lanes: what runs beside a Program's kernels (program/waits.h), and which of them waits for which. On the host each
// lane is a thread, those of the disk are two. On a device a lane is one of the device's streams; then waits are
// enqueued, too, and the thread that walks the schedule continues. Moves from and to the disk run on a thread
// everywhere, which waits for the device where it must.
//
// On a device nothing reports that a foreground kernel is done, so a background instruction also runs after all kernels
// that were enqueued before it was issued.
//
// Thread rule: the thread that runs the executor. Nothing allocates after Prepare, except for a trace.
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

// The stream of lane `lane` on a device; nullopt for those of the disk.
std::optional<StreamUse> StreamOfLane(size_t lane);

class Lanes {
 public:
  using Clock = std::chrono::steady_clock;
  // What runs a foreground instruction: the stream of kernels, or the host at once.
  enum class Foreground : uint8_t { kStream, kHost };

  // `device`: of the Program's kernels; nullptr: the host. It outlives this.
  explicit Lanes(Device* device) : device_(device) {}
  // Waits for all that was issued.
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  // Once. `issued`: background instructions of a run, by lane; `waits`: FindWaits of the Program.
  Status Prepare(const LaneCounts& issued, std::span<const LaneCounts> waits);

  // Begins a run, or the part of one before which `before` instructions of each lane are issued: they are complete.
  // With `timed`, TimeOf gives the times of each background instruction.
  Status Begin(bool timed, const LaneCounts& before = {});
  // Before an instruction of the foreground: makes it run after the first `counts` of each lane.
  Status Await(Foreground who, const LaneCounts& counts);
  // After kernels were enqueued on the device's stream of kernels. `on_pinned`: they read or wrote the host's memory.
  void NoteEnqueued(bool on_pinned);
  // A background instruction; `args`: as BackgroundQueue::Issue.
  Status Issue(size_t lane, const LaneCounts& counts, Kernel* kernel, const KernelArgs& args);
  // Returns when everything issued is done; the first error.
  Status Finish();

  // Instructions of a lane that are issued, with those before Begin.
  size_t issued(size_t lane) const { return lanes_[lane].issued; }
  struct Span {
    Clock::time_point start, end;
  };
  // Of the n-th instruction of a lane. REQUIRES: it was issued since Begin(true), and Finish was OK.
  Result<Span> TimeOf(size_t lane, size_t n) const;

 private:
  static constexpr size_t kStream = kBackgroundLanes, kHost = kBackgroundLanes + 1, kWaiters = kBackgroundLanes + 2;
  // Counts are those of a whole run, those of its queue since Begin.
  struct Lane {
    size_t capacity = 0, before = 0, issued = 0;
    std::unique_ptr<BackgroundQueue> queue;                    // for a lane that is a thread
    Stream* stream = nullptr;                                  // for a lane that is a stream
    std::vector<std::unique_ptr<Event>> done;                  // per instruction that something waits for; else nullptr
    std::vector<std::array<std::unique_ptr<Event>, 2>> timed;  // begin and end
  };
  Status AwaitAs(size_t waiter, const LaneCounts& counts);
  // Everything that waits from now on knows that the first `count` of `lane` are done.
  void NoteDone(size_t lane, uint32_t count);
  // An event after all kernels enqueued so far; nullptr if there are none.
  Result<Event*> MarkKernels();

  Device* const device_;
  bool any_ = false, timed_ = false;
  // Events before the lanes, whose threads may still wait for them when they end.
  std::vector<std::unique_ptr<Event>> marks_;  // in the stream of kernels; as many as a run can need
  std::unique_ptr<Event> origin_;
  std::array<Lane, kBackgroundLanes> lanes_;
  std::array<LaneCounts, kWaiters> awaited_ = {};  // per lane, the stream of kernels, and the host
  size_t marked_ = 0;
  bool enqueued_ = false;        // kernels, since the last mark
  bool host_must_wait_ = false;  // enqueued kernels touch the host's memory
  std::vector<Event*> after_;    // events for the item that is being issued to a thread
  Clock::time_point origin_time_;
};

}  // namespace temper
