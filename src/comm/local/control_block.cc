#include "comm/local/control_block.h"

#include <fmt/core.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <climits>
#include <cstring>

#include "base/check.h"
#include "base/host_name.h"
#include "base/processors.h"

namespace temper {
namespace {

constexpr size_t kTextBytes = 2048;
constexpr int kProcessorWords = CPU_SETSIZE / 64;

enum State : uint32_t { kRunning, kStopping, kStopped };

// Differs between programs that would misread each other's blocks.
constexpr uint64_t kLayout = 0x54656d7065720001;  // "Temper", 1: raise it when a field changes its meaning

}  // namespace

struct ControlBlock::Header {
  alignas(64) std::atomic<uint32_t> state;
  std::atomic<uint32_t> launched, forwarded;
  StatusCode code;
  int32_t reporter;
  uint32_t length;
  char text[kTextBytes];
  std::atomic<double> idle, busy;  // seconds; 0: not set
  std::atomic<uint64_t> layout, size;
  alignas(64) std::atomic<uint64_t> processors[kProcessorWords];
  std::atomic<int32_t> quota;  // of the cgroup, in processors; 0: none
};

const char* ToString(Meeting meeting) {
  switch (meeting) {
    case Meeting::kNone:
      return "nothing";
    case Meeting::kBarrier:
      return "a barrier";
    case Meeting::kSum:
      return "a sum over ranks";
    case Meeting::kMax:
      return "a maximum over ranks";
    case Meeting::kBroadcastBytes:
      return "a broadcast of bytes";
    case Meeting::kExchange:
      return "an exchange within a kernel";
    case Meeting::kMakeKernel:
      return "the making of a collective";
    case Meeting::kAllGather:
      return "all_gather";
    case Meeting::kReduceScatter:
      return "reduce_scatter";
    case Meeting::kAllReduce:
      return "all_reduce";
    case Meeting::kShift:
      return "shift";
  }
  return "?";
}

Bytes ControlBlock::SizeFor(int ranks) {
  const auto n = static_cast<int64_t>(ranks);
  const auto pairs = static_cast<int64_t>(sizeof(TransferSlot) + kMeetingLanes * sizeof(std::atomic<uint32_t>)) * n * n;
  return AlignUp({static_cast<int64_t>(sizeof(Header) + sizeof(RankBlock) * static_cast<size_t>(ranks)) + pairs}, 4096);
}

ControlBlock::ControlBlock(void* memory, int ranks)
    : header_(static_cast<Header*>(memory)),
      blocks_(reinterpret_cast<RankBlock*>(static_cast<std::byte*>(memory) + sizeof(Header))),
      transfers_(reinterpret_cast<TransferSlot*>(blocks_ + ranks)),
      counters_(reinterpret_cast<std::atomic<uint32_t>*>(transfers_ + static_cast<ptrdiff_t>(ranks) * ranks)),
      ranks_(ranks) {
  static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);
  static_assert(sizeof(Header) % alignof(RankBlock) == 0 && sizeof(RankBlock) % alignof(TransferSlot) == 0);
  TEMPER_CHECK(ranks >= 1 && ranks <= kMaxHostRanks) << ranks << " ranks on one host";
}

void ControlBlock::Stamp() const {
  header_->size.store(static_cast<uint64_t>(SizeFor(ranks_).v));
  header_->layout.store(kLayout);
}

bool ControlBlock::IsStamped() const {
  return header_->layout.load() == kLayout && header_->size.load() == static_cast<uint64_t>(SizeFor(ranks_).v);
}

std::string ControlBlock::NameOf(int i) const {
  const RankBlock& r = rank(i);
  const int pid = r.pid.load(std::memory_order_acquire);
  // Before it has joined its number is known only where hosts have one each.
  const int number = pid == 0 ? i : r.global_rank.load(std::memory_order_relaxed);
  if (pid == 0) return fmt::format("rank {} (which has not started)", number);
  if (pid == getpid()) return fmt::format("rank {}", number);
  if (launched()) return fmt::format("rank {} (process {})", number, pid);
  // Ranks of several hosts: this host's name is theirs, too.
  return fmt::format("rank {} on {} (process {})", number, HostName(), pid);
}

bool ControlBlock::Stop(const Status& cause, int reporter) const {
  // Another rank may be writing its cause; if it was killed before that was complete, the wait for it is short.
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  uint32_t state = kRunning;
  while (!header_->state.compare_exchange_strong(state, kStopping)) {
    if (state == kStopped) return false;
    if (std::chrono::steady_clock::now() > patience) break;
    state = kRunning;
    sched_yield();
  }
  const std::string& text = cause.message();
  header_->code = cause.code();
  header_->reporter = reporter;
  header_->length = static_cast<uint32_t>(std::min(text.size(), kTextBytes));
  std::memcpy(header_->text, text.data(), header_->length);
  header_->state.store(kStopped);
  for (int i = 0; i < ranks_; ++i) {
    for (Sleeper& sleeper : rank(i).sleepers) RingDoorbell(sleeper);
  }
  return true;
}

bool ControlBlock::stopped() const {
  return header_->state.load(std::memory_order_acquire) == kStopped;
}

Status ControlBlock::Cause() const {
  if (!stopped()) return OkStatus();
  const size_t length = std::min<size_t>(header_->length, kTextBytes);
  return {ErrorCodeOf(static_cast<int32_t>(header_->code)), std::string(header_->text, length)};
}

int ControlBlock::reporter() const {
  return stopped() ? header_->reporter : -1;
}

bool ControlBlock::ClaimForwarding() const {
  return header_->forwarded.exchange(1) == 0;
}

void ControlBlock::SetPatience(const Patience& patience) const {
  header_->idle.store(patience.idle.v);
  header_->busy.store(patience.busy.v);
}

Patience ControlBlock::patience() const {
  Patience patience;
  if (const double idle = header_->idle.load(); idle > 0) patience.idle = {idle};
  if (const double busy = header_->busy.load(); busy > 0) patience.busy = {busy};
  return patience;
}

void ControlBlock::SetLaunched() const {
  header_->launched.store(1);
}
bool ControlBlock::launched() const {
  return header_->launched.load() != 0;
}

void ControlBlock::AddProcessors() const {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) header_->processors[i / 64].fetch_or(uint64_t{1} << (i % 64));
  }
  // Ranks of a container share its quota.
  const int quota = ProcessorsAtStart().number;
  if (quota >= CPU_COUNT(&set)) return;
  int32_t known = header_->quota.load();
  while ((known == 0 || quota < known) && !header_->quota.compare_exchange_weak(known, quota)) {
  }
}

int ControlBlock::processors() const {
  int n = 0;
  for (const auto& word : header_->processors) n += std::popcount(word.load(std::memory_order_relaxed));
  const int quota = header_->quota.load(std::memory_order_relaxed);
  return quota > 0 ? std::min(n, quota) : n;
}

StatusCode ErrorCodeOf(int32_t code) {
  const bool known = code > static_cast<int32_t>(StatusCode::kOk) && code <= static_cast<int32_t>(StatusCode::kInUse);
  return known ? static_cast<StatusCode>(code) : StatusCode::kIo;
}

void RingDoorbell(Sleeper& sleeper) {
  sleeper.doorbell.fetch_add(1);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&sleeper.doorbell), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace temper
