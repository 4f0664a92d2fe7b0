#include "comm/local/rendezvous.h"

#include <fmt/format.h>
#include <immintrin.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>

namespace temper {
namespace {

// Longer than a wake-up takes (50 to 100 microseconds on a virtual machine): with less, one late rank makes its peer
// sleep, which is then late itself, and so on. Where ranks share processors, spinning takes time from those who are
// waited for; other programs may put two ranks on one at any time, hence the yielding.
constexpr std::chrono::microseconds kSpinAlone{500}, kSpinCrowded{2}, kBeforeYielding{10};
constexpr int kSpinsPerLook = 32;  // about a microsecond
constexpr long kSleepNanoseconds = 100'000'000;

}  // namespace

Rendezvous::Rendezvous(const ControlBlock& control, int self, bool processes, const Patience& patience)
    : control_(control),
      self_(self),
      watch_(control, self, processes, patience),
      expected_(static_cast<size_t>(control.ranks()), 0) {
  readers_.reserve(static_cast<size_t>(control.ranks()));
}

Status Rendezvous::Stop(const Status& cause) {
  control_.Stop(cause, own().global_rank.load(std::memory_order_relaxed));
  while (!control_.stopped()) sched_yield();  // somebody else is just writing his cause
  return control_.Cause();
}

Status Rendezvous::Publish(Meeting meeting, uint64_t fingerprint) {
  TEMPER_RETURN_IF_ERROR(Check());
  for (const int peer : readers_) TEMPER_RETURN_IF_ERROR(Await(peer));
  readers_.clear();
  RankBlock& block = own();
  block.meeting = meeting;
  block.fingerprint = fingerprint;
  return OkStatus();
}

void Rendezvous::Signal(const HostGroup& group) {
  for (const int peer : group.members) {
    if (peer == self_) continue;
    std::atomic<uint32_t>& count = control_.signals(peer, self_);
    // Sequentially consistent, as the sleeper's flag and its second look are: one of the two sees the other.
    count.store(count.load(std::memory_order_relaxed) + 1);
    RankBlock& block = control_.rank(peer);
    if (block.sleeping.load() != 0) RingDoorbell(block);
    ++expected_[static_cast<size_t>(peer)];
  }
}

Status Rendezvous::Arrive(const HostGroup& group) {
  Signal(group);
  const RankBlock& mine = own();
  for (const int peer : group.members) {
    if (peer == self_) continue;
    TEMPER_RETURN_IF_ERROR(Await(peer));
    const RankBlock& theirs = control_.rank(peer);
    if (theirs.meeting != mine.meeting || theirs.fingerprint != mine.fingerprint) {
      return Stop(InvalidArgument(fmt::format(
          "{} is in {}, {} in {}{}: ranks must run the same program", control_.NameOf(self_), ToString(mine.meeting),
          control_.NameOf(peer), ToString(theirs.meeting), theirs.meeting == mine.meeting ? " of other tensors" : "")));
    }
  }
  return OkStatus();
}

Status Rendezvous::Depart(const HostGroup& group) {
  Signal(group);
  for (const int peer : group.members) {
    if (peer != self_) TEMPER_RETURN_IF_ERROR(Await(peer));
  }
  return OkStatus();
}

void Rendezvous::Leave(const HostGroup& group) {
  Signal(group);
  for (const int peer : group.members) {
    if (peer != self_) readers_.push_back(peer);
  }
}

Status Rendezvous::Await(int peer) {
  if (Reached(peer)) return OkStatus();
  if (spin_.count() == 0) spin_ = control_.processors() >= control_.ranks() ? kSpinAlone : kSpinCrowded;
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    for (int i = 0; i < kSpinsPerLook; ++i) {
      _mm_pause();
      if (Reached(peer)) return OkStatus();
    }
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited > spin_) return Sleep(peer);
    if (waited > kBeforeYielding) sched_yield();
  }
}

Status Rendezvous::Sleep(int peer) {
  using Clock = std::chrono::steady_clock;
  RankBlock& block = own();
  const Clock::time_point start = Clock::now();
  Clock::time_point next_look = start + std::chrono::nanoseconds(kSleepNanoseconds);
  block.waiting_for.store(peer + 1);
  Status status;
  while (true) {
    block.sleeping.store(1);
    const uint32_t bell = block.doorbell.load();
    if (Reached(peer)) break;
    status = Check();
    if (!status.ok()) break;
    const timespec timeout{.tv_sec = 0, .tv_nsec = kSleepNanoseconds};
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&block.doorbell), FUTEX_WAIT, bell, &timeout, nullptr, 0);
    const Clock::time_point now = Clock::now();
    if (now < next_look) continue;
    next_look = now + std::chrono::nanoseconds(kSleepNanoseconds);
    if (Reached(peer)) break;
    status = watch_.Judge(peer, Seconds{std::chrono::duration<double>(now - start).count()});
    if (status.ok()) continue;
    // A peer that signals and leaves at once has come.
    status = Reached(peer) ? OkStatus() : Stop(status);
    break;
  }
  block.sleeping.store(0);
  block.waiting_for.store(0);
  return status;
}

}  // namespace temper
