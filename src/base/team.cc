#include "base/team.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <system_error>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/processors.h"

namespace temper {
namespace {

// Longer than a wake-up takes (50 to 100 microseconds on a virtual machine): sleeping at every barrier costs a small
// model's step four times its length. Where other work wants the processor, who is waited for may be behind it: then
// spinning is what keeps the team apart, hence the yielding, which costs nothing where nobody else is there.
constexpr std::chrono::microseconds kSpin{200}, kBeforeYielding{10};
constexpr int kPausesPerLook = 32;  // about a microsecond

// Until `word` is no longer `old`.
void AwaitChange(const std::atomic<uint32_t>& word, uint32_t old) {
  const auto changed = [&] { return word.load(std::memory_order_acquire) != old; };
  if (changed()) return;
  const auto start = std::chrono::steady_clock::now();
  for (std::chrono::steady_clock::duration waited{}; waited < kSpin;
       waited = std::chrono::steady_clock::now() - start) {
    if (waited > kBeforeYielding) sched_yield();
    for (int i = 0; i < kPausesPerLook; ++i) {
      _mm_pause();
      if (changed()) return;
    }
  }
  word.wait(old, std::memory_order_acquire);
}

constexpr int kLine = 64;  // bytes: what threads that write apart must not share

}  // namespace

class TeamBarrier {
 public:
  void Meet(uint32_t size) {
    const uint32_t turn = turn_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < size) return AwaitChange(turn_, turn);
    arrived_.store(0, std::memory_order_relaxed);
    turn_.fetch_add(1);
    turn_.notify_all();
  }

 private:
  alignas(kLine) std::atomic<uint32_t> arrived_{0};
  alignas(kLine) std::atomic<uint32_t> turn_{0};
};

namespace {

// Whether this thread is at work in a team.
thread_local bool in_team = false;

class Team {
 public:
  ~Team() {
    Start(kLeave);
    for (std::thread& worker : workers_) worker.join();
  }

  void Run(int threads, FunctionRef<void(TeamMember)> body) {
    const uint32_t size = std::min(static_cast<uint32_t>(threads), Grow(threads));
    body_ = &body;
    log_ = &CurrentLog();
    working_.store(size - 1, std::memory_order_relaxed);
    Start(size);
    in_team = true;
    // The other members work on what lies in this frame: an exception must not leave it.
    [&]() noexcept { body({.index = 0, .size = static_cast<int>(size), .barrier = &barrier_}); }();
    in_team = false;
    for (uint32_t n; (n = working_.load(std::memory_order_acquire)) > 0;) AwaitChange(working_, n);
  }

 private:
  // `start_` holds how often the team started, and with how many of its threads: one word, because who is not among
  // them may look when the next start is being made ready.
  static constexpr uint32_t kSizes = 1 << 12, kLeave = kSizes - 1;

  void Start(uint32_t size) {
    start_.store((start_.load(std::memory_order_relaxed) / kSizes + 1) * kSizes + size);
    start_.notify_all();
  }

  // To `threads`, or as many as there may be; returns how many they are.
  uint32_t Grow(int threads) {
    uint32_t size = static_cast<uint32_t>(workers_.size()) + 1;
    for (const uint32_t wanted = std::min(static_cast<uint32_t>(threads), kLeave - 1); size < wanted; ++size) {
      try {
        workers_.emplace_back(&Team::Work, this, size, start_.load(std::memory_order_relaxed));
      } catch (const std::system_error&) {
        break;
      }
    }
    return size;
  }

  // What worker `index` does from when `start_` was `start`.
  void Work(uint32_t index, uint32_t start) {
    in_team = true;
    while (true) {
      AwaitChange(start_, start);
      start = start_.load(std::memory_order_acquire);
      const uint32_t size = start % kSizes;
      if (size == kLeave) return;
      if (index >= size) continue;
      const LogScope scope(*log_);
      (*body_)({.index = static_cast<int>(index), .size = static_cast<int>(size), .barrier = &barrier_});
      if (working_.fetch_sub(1) == 1) working_.notify_one();
    }
  }

  alignas(kLine) std::atomic<uint32_t> start_{0};
  const FunctionRef<void(TeamMember)>* body_ = nullptr;
  LogSink* log_ = nullptr;  // of who runs the body
  alignas(kLine) std::atomic<uint32_t> working_{0};
  TeamBarrier barrier_;
  std::vector<std::thread> workers_;
};

}  // namespace

int AvailableProcessors() {
  return std::min(AffineProcessors(), ProcessorsAtStart().number);
}

void TeamMember::Meet() const {
  if (size > 1) barrier->Meet(static_cast<uint32_t>(size));
}

void RunTeam(int threads, FunctionRef<void(TeamMember)> body) {
  if (threads == 1 || in_team) return body({});
  thread_local Team team;
  team.Run(threads, body);
}

}  // namespace temper
