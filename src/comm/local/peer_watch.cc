#include "comm/local/peer_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace temper {
namespace {

// A launcher reaps a dead rank at once and then tells what it died of.
constexpr std::chrono::milliseconds kLaunchersTurn{500};
constexpr std::chrono::seconds kLongSleep{2};
// Less than this between two samples is no work: a progress line, a timer.
constexpr double kIdleShare = 0.0025;
constexpr int64_t kIdleBytes = 4096;

// Reads a file of /proc into `text` without allocating; false where it is gone.
template <size_t kSize>
bool ReadProc(const char* path, char (&text)[kSize]) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t n = read(fd, text, kSize - 1);
  close(fd);
  if (n <= 0) return false;
  text[n] = 0;
  return true;
}

int64_t NumberAfter(const char* text, const char* key) {
  const char* const at = std::strstr(text, key);
  return at == nullptr ? 0 : std::strtoll(at + std::strlen(key), nullptr, 10);
}

double SecondsBetween(std::chrono::steady_clock::time_point a, std::chrono::steady_clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

const char* Meaning(char state) {
  switch (state) {
    case 'T':
    case 't':
      return "it is stopped";
    case 'S':
      return "it sleeps";
    default:
      return "it does nothing";
  }
}

}  // namespace

PeerWatch::PeerWatch(const ControlBlock& control, int self, bool processes, const Patience& patience)
    : control_(control),
      self_(self),
      processes_(processes),
      patience_(patience),
      ticks_per_second_(sysconf(_SC_CLK_TCK)),
      pidfds_(static_cast<size_t>(control.ranks()), -1) {}

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
  const char* const here = ToString(control_.rank(self_).meeting);
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
  if (waited.v > patience_.busy.v) {
    return IoError(fmt::format("{} has waited for {} in {} for {}", control_.NameOf(self_), control_.NameOf(peer), here,
                               ToString(waited)));
  }
  const bool circle = WaitInACircle(peer);
  if (circle && !circle_) circle_since_ = now;
  circle_ = circle;
  if (circle_ && SecondsBetween(circle_since_, now) > patience_.idle.v) {
    return IoError(fmt::format("ranks wait for each other: {} in {}, {} in {}: they do not run the same program",
                               control_.NameOf(self_), here, control_.NameOf(peer), ToString(block.meeting)));
  }
  if (now < next_sample_) return OkStatus();
  next_sample_ = now + std::chrono::duration_cast<Clock::duration>(
                           std::chrono::duration<double>(std::min(1.0, patience_.idle.v / 5)));
  return JudgeActivity(peer, now);
}

// A peer that waits for somebody itself is judged by what it waits for, unless it cannot wake up.
Status PeerWatch::JudgeActivity(int peer, Clock::time_point now) {
  const Activity activity = ActivityOf(peer);
  const bool waits = control_.rank(peer).waiting_for.load() != 0 && activity.state != 'T' && activity.state != 't';
  const double seconds = SecondsBetween(mark_time_, now);
  const int64_t idle_ticks = static_cast<int64_t>(kIdleShare * seconds * static_cast<double>(ticks_per_second_)) + 1;
  const bool busy =
      activity.state == 'D' || activity.ticks - mark_.ticks > idle_ticks || activity.bytes - mark_.bytes > kIdleBytes;
  if (!activity.known || !mark_.known || waits || busy) {
    mark_ = activity;
    mark_time_ = now;
    return OkStatus();
  }
  if (seconds < patience_.idle.v) return OkStatus();
  return IoError(fmt::format("{} gives no sign of life for {} ({}), and {} waits for it in {}", control_.NameOf(peer),
                             ToString(Seconds{seconds}), Meaning(activity.state), control_.NameOf(self_),
                             ToString(control_.rank(self_).meeting)));
}

PeerWatch::Activity PeerWatch::ActivityOf(int peer) const {
  const RankBlock& block = control_.rank(peer);
  const int pid = block.pid.load(std::memory_order_acquire), tid = block.tid.load(std::memory_order_relaxed);
  if (pid == 0) return {};
  char path[64], text[1024];
  const auto path_of = [&](const char* name) {
    if (processes_) {
      std::snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    } else {
      std::snprintf(path, sizeof path, "/proc/%d/task/%d/%s", pid, tid, name);
    }
    return path;
  };
  if (!ReadProc(path_of("stat"), text)) return {};
  // "pid (name) state ppid ...": the name may hold anything, so the last ')' counts; utime and stime are fields 14, 15.
  const char* at = std::strrchr(text, ')');
  if (at == nullptr || at[1] == 0) return {};
  Activity activity{.known = true, .state = at[2]};
  at += 2;
  for (int field = 3; field < 14 && at != nullptr; ++field) {
    at = std::strchr(at, ' ');
    if (at != nullptr) ++at;
  }
  if (at == nullptr) return {};
  char* end = nullptr;
  activity.ticks = std::strtoll(at, &end, 10);
  activity.ticks += std::strtoll(end, nullptr, 10);
  if (ReadProc(path_of("io"), text)) activity.bytes = NumberAfter(text, "rchar: ") + NumberAfter(text, "wchar: ");
  return activity;
}

bool PeerWatch::WaitInACircle(int peer) const {
  for (int steps = 0; steps <= control_.ranks(); ++steps) {
    if (peer == self_) return true;
    const int next = control_.rank(peer).waiting_for.load();
    if (next == 0) return false;
    peer = next - 1;
  }
  return true;
}

}  // namespace temper
