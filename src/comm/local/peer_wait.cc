#include "comm/local/peer_wait.h"

#include <immintrin.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace temper {
namespace {

// Longer than a wake-up takes (50 to 100 microseconds on a virtual machine): with less, one late rank makes its peer
// sleep, which is then late itself, and so on. Where ranks share processors, spinning takes time from those who are
// waited for; other programs may put two ranks on one at any time, hence the yielding.
constexpr std::chrono::microseconds kSpinAlone{500}, kSpinCrowded{2}, kBeforeYielding{10};
constexpr int kSpinsPerLook = 32;  // about a microsecond
constexpr long kSleepNanoseconds = 100'000'000;

}  // namespace

PeerWait::PeerWait(const ControlBlock& control, int self, Lane lane, bool processes)
    : control_(control), self_(self), lane_(lane), watch_(control, self, lane, processes) {}

Status PeerWait::Stop(const Status& cause) {
  control_.Stop(cause, control_.rank(self_).global_rank.load(std::memory_order_relaxed));
  return control_.Cause();
}

Status PeerWait::Until(int peer, FunctionRef<bool()> reached) {
  if (reached()) return OkStatus();
  if (spin_.count() == 0) {
    // A wait for another stage is long, beside a thread that computes.
    const bool alone = IsMeetingLane(lane_) && control_.processors() >= control_.ranks();
    spin_ = alone ? kSpinAlone : kSpinCrowded;
  }
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    for (int i = 0; i < kSpinsPerLook; ++i) {
      _mm_pause();
      if (reached()) return OkStatus();
    }
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited > spin_) return Sleep(peer, reached);
    if (waited > kBeforeYielding) sched_yield();
  }
}

Status PeerWait::Sleep(int peer, FunctionRef<bool()> reached) {
  using Clock = std::chrono::steady_clock;
  Sleeper& own = control_.sleeper(self_, lane_);
  const Clock::time_point start = Clock::now();
  Clock::time_point next_look = start + std::chrono::nanoseconds(kSleepNanoseconds);
  own.tid.store(static_cast<int32_t>(syscall(SYS_gettid)));
  own.waiting_for.store(peer + 1);
  Status status;
  while (true) {
    own.sleeping.store(1);
    const uint32_t bell = own.doorbell.load();
    if (reached()) break;
    status = Check();
    if (!status.ok()) break;
    const timespec timeout{.tv_sec = 0, .tv_nsec = kSleepNanoseconds};
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&own.doorbell), FUTEX_WAIT, bell, &timeout, nullptr, 0);
    const Clock::time_point now = Clock::now();
    if (now < next_look) continue;
    next_look = now + std::chrono::nanoseconds(kSleepNanoseconds);
    if (reached()) break;
    status = watch_.Judge(peer, Seconds{std::chrono::duration<double>(now - start).count()});
    if (status.ok()) continue;
    // A peer that signals and leaves at once has come.
    status = reached() ? OkStatus() : Stop(status);
    break;
  }
  own.sleeping.store(0);
  own.waiting_for.store(0);
  return status;
}

}  // namespace temper
