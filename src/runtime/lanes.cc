#include "runtime/lanes.h"

#include <algorithm>

#include "base/check.h"

namespace temper {
namespace {

// Under way at once in each direction, so that the disk has something to do when the last chunks of one are.
constexpr int kMovesOfDisk = 2;

const char* NameOf(size_t lane) {
  if (IsCollectiveLane(lane)) return "a collective in the background";
  return lane < kFirstMoveLane ? "a transfer" : "a move";
}

}  // namespace

std::optional<StreamUse> StreamOfLane(size_t lane) {
  switch (lane) {
    case kCollectiveLane:
      return StreamUse::kCollectives;
    case kSoonLane:
      return StreamUse::kSoonCollectives;
    case kSendLane:
      return StreamUse::kSends;
    case kReceiveLane:
      return StreamUse::kReceives;
    case kFirstMoveLane:
      return StreamUse::kFetches;
    case kFirstMoveLane + 1:
      return StreamUse::kEvictions;
    default:
      return std::nullopt;
  }
}

Lanes::~Lanes() {
  for (Lane& lane : lanes_) {
    if (lane.stream != nullptr) (void)lane.stream->Synchronize();
  }
}

Status Lanes::Prepare(const LaneCounts& issued, std::span<const LaneCounts> waits) {
  size_t all = 0;
  for (size_t i = 0; i < kBackgroundLanes; ++i) {
    Lane& lane = lanes_[i];
    lane.capacity = issued[i];
    all += lane.capacity;
    if (lane.capacity == 0) continue;
    any_ = true;
    const auto use = StreamOfLane(i);
    if (device_ == nullptr || !use) {
      // A device's moves to and from a disk share what they are staged in.
      lane.queue = device_ != nullptr
                       ? std::make_unique<BackgroundQueue>(lane.capacity, 1 + kBackgroundLanes)
                       : std::make_unique<BackgroundQueue>(lane.capacity, 0, IsDiskLane(i) ? kMovesOfDisk : 1);
      continue;
    }
    lane.stream = &device_->StreamFor(*use);
    lane.done.resize(lane.capacity);
    for (const LaneCounts& counts : waits) {
      if (counts[i] == 0 || lane.done[counts[i] - 1] != nullptr) continue;
      TEMPER_ASSIGN_OR_RETURN(lane.done[counts[i] - 1], device_->MakeEvent());
    }
  }
  if (device_ == nullptr || !any_) return OkStatus();
  for (size_t i = 0; i <= all; ++i) {
    TEMPER_ASSIGN_OR_RETURN(marks_.emplace_back(), device_->MakeEvent());
  }
  after_.reserve(1 + kBackgroundLanes);
  return OkStatus();
}

Status Lanes::Begin(bool timed, const LaneCounts& before) {
  for (size_t i = 0; i < kBackgroundLanes; ++i) {
    Lane& lane = lanes_[i];
    if (lane.queue != nullptr && lane.issued > lane.before) lane.queue->Reset();
    lane.before = lane.issued = before[i];
  }
  for (LaneCounts& counts : awaited_) counts = before;
  marked_ = 0;
  enqueued_ = device_ != nullptr;  // inputs, scalars
  host_must_wait_ = false;
  timed_ = timed && any_;
  if (!timed_ || device_ == nullptr) return OkStatus();
  for (Lane& lane : lanes_) {
    if (lane.stream == nullptr) continue;
    lane.timed.resize(lane.capacity);
    for (auto& events : lane.timed) {
      for (auto& event : events) {
        if (event == nullptr) {
          TEMPER_ASSIGN_OR_RETURN(event, device_->MakeEvent());
        }
      }
    }
  }
  if (origin_ == nullptr) {
    TEMPER_ASSIGN_OR_RETURN(origin_, device_->MakeEvent());
  }
  TEMPER_RETURN_IF_ERROR(device_->stream().Mark(*origin_));
  TEMPER_RETURN_IF_ERROR(origin_->Synchronize());
  origin_time_ = Clock::now();
  return OkStatus();
}

void Lanes::NoteDone(size_t lane, uint32_t count) {
  for (LaneCounts& counts : awaited_) counts[lane] = std::max(counts[lane], count);
}

Result<Event*> Lanes::MarkKernels() {
  if (enqueued_) {
    enqueued_ = false;
    TEMPER_CHECK(marked_ < marks_.size()) << "more marks than background instructions";
    TEMPER_RETURN_IF_ERROR(device_->stream().Mark(*marks_[marked_]));
    ++marked_;
  }
  return marked_ == 0 ? nullptr : marks_[marked_ - 1].get();
}

Status Lanes::AwaitAs(size_t waiter, const LaneCounts& counts) {
  for (size_t i = 0; i < kBackgroundLanes; ++i) {
    const uint32_t count = counts[i];
    if (count <= awaited_[waiter][i] || i == waiter) continue;
    Lane& lane = lanes_[i];
    if (lane.queue != nullptr) {
      const Status status = lane.queue->Wait(count - lane.before);
      if (!status.ok()) return status.WithContext(NameOf(i));
      NoteDone(i, count);
      continue;
    }
    Event& done = *lane.done[count - 1];
    if (waiter == kHost) {
      TEMPER_RETURN_IF_ERROR(done.Synchronize());
      NoteDone(i, count);
      continue;
    }
    if (waiter != kStream && lanes_[waiter].queue != nullptr) {
      after_.push_back(&done);
    } else {
      TEMPER_RETURN_IF_ERROR((waiter == kStream ? device_->stream() : *lanes_[waiter].stream).Await(done));
    }
    awaited_[waiter][i] = count;
  }
  return OkStatus();
}

Status Lanes::Await(Foreground who, const LaneCounts& counts) {
  if (device_ == nullptr || who == Foreground::kStream) return AwaitAs(device_ == nullptr ? kHost : kStream, counts);
  TEMPER_RETURN_IF_ERROR(AwaitAs(kHost, counts));
  if (!host_must_wait_) return OkStatus();
  host_must_wait_ = false;
  return device_->stream().Synchronize();
}

void Lanes::NoteEnqueued(bool on_pinned) {
  enqueued_ = true;
  host_must_wait_ |= on_pinned;
}

Status Lanes::Issue(size_t lane, const LaneCounts& counts, Kernel* kernel, const KernelArgs& args) {
  Lane& own = lanes_[lane];
  if (device_ == nullptr) {
    TEMPER_RETURN_IF_ERROR(AwaitAs(kHost, counts));
    own.queue->Issue(kernel, args);
    ++own.issued;
    return OkStatus();
  }
  TEMPER_ASSIGN_OR_RETURN(Event* const kernels, MarkKernels());
  after_.clear();
  if (own.queue != nullptr) {
    if (kernels != nullptr) after_.push_back(kernels);
    TEMPER_RETURN_IF_ERROR(AwaitAs(lane, counts));
    own.queue->Issue(kernel, args, after_);
    ++own.issued;
    return OkStatus();
  }
  const size_t n = own.issued++;
  if (kernels != nullptr) TEMPER_RETURN_IF_ERROR(own.stream->Await(*kernels));
  TEMPER_RETURN_IF_ERROR(AwaitAs(lane, counts));
  if (timed_) TEMPER_RETURN_IF_ERROR(own.stream->Mark(*own.timed[n][0]));
  const Status status = kernel->Run(args);
  if (!status.ok()) return status.WithContext(NameOf(lane));
  if (timed_) TEMPER_RETURN_IF_ERROR(own.stream->Mark(*own.timed[n][1]));
  return own.done[n] != nullptr ? own.stream->Mark(*own.done[n]) : OkStatus();
}

Status Lanes::Finish() {
  for (size_t i = 0; i < kBackgroundLanes; ++i) {
    Lane& lane = lanes_[i];
    if (lane.capacity == 0) continue;
    const Status status =
        lane.queue != nullptr ? lane.queue->Wait(lane.issued - lane.before) : lane.stream->Synchronize();
    if (!status.ok()) return status.WithContext(NameOf(i));
  }
  return OkStatus();
}

Result<Lanes::Span> Lanes::TimeOf(size_t lane, size_t n) const {
  const Lane& own = lanes_[lane];
  if (own.queue != nullptr) {
    const BackgroundQueue::Item& item = own.queue->item(n - own.before);
    return Span{item.start, item.end};
  }
  Span span;
  for (const size_t end : {0u, 1u}) {
    TEMPER_ASSIGN_OR_RETURN(const Seconds since, own.timed[n][end]->Since(*origin_));
    (end == 0 ? span.start : span.end) =
        origin_time_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(since.v));
  }
  return span;
}

}  // namespace temper
