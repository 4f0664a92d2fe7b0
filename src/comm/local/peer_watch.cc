#include "comm/local/peer_watch.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace temper {
namespace {

// A launcher reaps a dead rank at once and then tells what it died of.
constexpr std::chrono::milliseconds kLaunchersTurn{500};
constexpr std::chrono::seconds kLongSleep{2};

double SecondsBetween(std::chrono::steady_clock::time_point a, std::chrono::steady_clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

}  // namespace

PeerWatch::PeerWatch(const ControlBlock& control, int self, Lane lane, bool processes)
    : control_(control),
      self_(self),
      lane_(lane),
      processes_(processes),
      pidfds_(static_cast<size_t>(control.ranks()), -1),
      suspect_since_(static_cast<size_t>(control.ranks())) {}

PeerWatch::~PeerWatch() {
  for (const int fd : pidfds_) {
    if (fd >= 0) close(fd);
  }
}

bool PeerWatch::Died(int peer) {
  const int pid = control_.rank(peer).pid.load(std::memory_order_acquire);
  if (!processes_ || pid == 0 || pid == getpid()) return false;
  int& fd = pidfds_[static_cast<size_t>(peer)];
  if (fd < 0) {
    fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (fd < 0) return errno == ESRCH;  // gone and reaped before it was looked at
  }
  pollfd ended{.fd = fd, .events = POLLIN};
  return poll(&ended, 1, 0) == 1;
}

Status PeerWatch::Judge(int peer, Seconds waited) {
  const Clock::time_point now = Clock::now();
  // Where this process itself was stopped or its machine slept, so were the peers: what was counted means nothing.
  const bool slept = now - last_look_ > kLongSleep;
  last_look_ = now;
  if (peer != peer_ || waited.v < 0.2 || slept) {
    peer_ = peer;
    mark_ = {};
    circle_ = dead_ = false;
    next_sample_ = now;
  }
  const RankBlock& block = control_.rank(peer);
  const char* const here = Matter(self_, lane_);
  const Patience patience = control_.patience();
  if (block.left.load(std::memory_order_acquire) != 0) {
    return IoError(fmt::format("{} has left the run while {} waits for it in {}", control_.NameOf(peer),
                               control_.NameOf(self_), here));
  }
  if (Died(peer)) {
    if (!dead_) died_ = now;
    dead_ = true;
    if (control_.launched() && now - died_ < kLaunchersTurn) return OkStatus();
    return IoError(
        fmt::format("{} has died; {} was waiting for it in {}", control_.NameOf(peer), control_.NameOf(self_), here));
  }
  if (waited.v > patience.busy.v) {
    return IoError(fmt::format("{} has waited for {} in {} for {}", control_.NameOf(self_), control_.NameOf(peer), here,
                               ToString(waited)));
  }
  int last = peer;
  Lane last_lane = lane_;
  const bool circle = FollowCircle(peer, [&](int rank, Lane lane) {
    if (rank == self_) return;
    last = rank;
    last_lane = lane;
  });
  if (circle && !circle_) circle_since_ = now;
  circle_ = circle;
  if (circle_ && SecondsBetween(circle_since_, now) > patience.idle.v) {
    // A rank that was stopped while it waited still looks as if it did, and so do all that wait for it.
    int stopped = -1;
    (void)FollowCircle(peer, [&](int rank, Lane) {
      if (ActivityOf(control_.rank(rank).pid.load(), processes_ ? 0 : control_.rank(rank).tid.load()).stopped()) {
        stopped = rank;
      }
    });
    if (stopped >= 0) {
      return IoError(fmt::format("{} gives no sign of life for {} (it is stopped), and {} waits for it in {}",
                                 control_.NameOf(stopped), ToString(patience.idle), control_.NameOf(self_), here));
    }
    return IoError(fmt::format("ranks wait for each other: {} in {}, {} in {}: they do not run the same program",
                               control_.NameOf(self_), here, control_.NameOf(last), Matter(last, last_lane)));
  }
  if (now < next_sample_) return OkStatus();
  next_sample_ = now + std::chrono::duration_cast<Clock::duration>(
                           std::chrono::duration<double>(std::min(1.0, patience.idle.v / 5)));
  return JudgeActivity(peer, now);
}

Status PeerWatch::LookAround() {
  const Clock::time_point now = Clock::now();
  const bool slept = now - last_look_ > kLongSleep;
  last_look_ = now;
  for (int i = 0; i < control_.ranks(); ++i) {
    const RankBlock& block = control_.rank(i);
    std::optional<Clock::time_point>& since = suspect_since_[static_cast<size_t>(i)];
    const bool died = i != self_ && Died(i);
    // What it has said last counts: it may have left between the two questions.
    if (i == self_ || block.left.load(std::memory_order_acquire) != 0 ||
        (!died && !ActivityOf(block.pid.load(), processes_ ? 0 : block.tid.load()).stopped())) {
      since.reset();
      continue;
    }
    if (!since || slept) since = now;
    const double seconds = SecondsBetween(*since, now);
    if (died && (!control_.launched() || now - *since >= kLaunchersTurn)) {
      return IoError(fmt::format("{} has died", control_.NameOf(i)));
    }
    if (!died && seconds > control_.patience().idle.v) {
      return IoError(fmt::format("{} gives no sign of life for {} (it is stopped)", control_.NameOf(i),
                                 ToString(Seconds{seconds})));
    }
  }
  return OkStatus();
}

// A peer that itself waits is judged by the rank it waits for, unless it cannot wake up.
Status PeerWatch::JudgeActivity(int peer, Clock::time_point now) {
  const OwnActivity own = OwnActivityOf(control_, peer, processes_);
  const bool waits = WaitsOf(control_, peer).HeldUpIn(lane_) && !own.activity.stopped();
  const double seconds = SecondsBetween(mark_time_, now);
  if (waits || own.MayHaveWorkedSince(mark_, seconds)) {
    mark_ = own;
    mark_time_ = now;
    return OkStatus();
  }
  if (seconds < control_.patience().idle.v) return OkStatus();
  return IoError(fmt::format("{} gives no sign of life for {} ({}), and {} waits for it in {}", control_.NameOf(peer),
                             ToString(Seconds{seconds}), own.activity.stopped() ? "it is stopped" : "it sleeps",
                             control_.NameOf(self_), Matter(self_, lane_)));
}

bool PeerWatch::FollowCircle(int peer, FunctionRef<void(int rank, Lane lane)> visit) const {
  Lane lane = lane_;
  for (int steps = 0; steps <= kNumLanes * control_.ranks(); ++steps) {
    const RankWaits waits = WaitsOf(control_, peer);
    const std::optional<Lane> held = waits.HeldUpIn(lane);
    if (!held) return false;
    visit(peer, *held);
    if (peer == self_ && *held == lane_) return true;
    lane = *held;
    peer = waits.on[static_cast<size_t>(lane)] - 1;
    if (peer < 0 || peer >= control_.ranks()) return false;  // on another host
  }
  return false;  // a circle of others, who see it themselves
}

}  // namespace temper
