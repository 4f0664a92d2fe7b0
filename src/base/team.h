// A team: threads that work on one loop together, over a fixed partition. The partition depends only on the number of
// items, so a kernel whose items are independent gives the same bits on any number of threads. Which thread takes which
// item affects only caches.
//
// Every calling thread has a team of its own, whose threads start when they are first needed and end with it; once
// it has had a team of that size nothing is allocated. A thread that waits, for work or at a barrier, spins for
// some microseconds, then yields, then sleeps. A child of fork() must not use teams if the thread that forked has
// one.
// Not for files compiled for an instruction set (backend/cpu/isa.h): they get a range and know nothing of threads.
#pragma once

#include <cstdint>

#include "base/function_ref.h"

namespace temper {

class TeamBarrier;

// Processors that this process may run on.
int AvailableProcessors();

// A thread's place in a team.
struct TeamMember {
  int index = 0, size = 1;
  TeamBarrier* barrier = nullptr;  // null in a team of one

  // Returns when all members have arrived: what they wrote before is visible after. REQUIRES: all of them arrive.
  void Meet() const;
};

// Calls body(member) on each thread of a team of `threads`, the caller being the first, and returns when all have
// returned. The team is smaller if the system refuses more threads; within a team, it is one thread. `body` must not
// throw. REQUIRES: threads >= 1.
void RunTeam(int threads, FunctionRef<void(TeamMember)> body);

// Calls body(i) for each i in [0, n): thread k takes the k-th of `threads` contiguous runs, whose lengths differ by at
// most one. `body` must not throw. REQUIRES: threads >= 1.
template <class Body>
void ParallelFor(int threads, int64_t n, const Body& body) {
  const auto run = [&](TeamMember self) {
    const int64_t end = n * (self.index + 1) / self.size;
    for (int64_t i = n * self.index / self.size; i < end; ++i) body(i);
  };
  n <= 1 ? run({}) : RunTeam(threads, run);
}

// Calls body(begin, end) for consecutive blocks of `block` items of [0, n), the last one shorter.
template <class Body>
void ParallelBlocks(int threads, int64_t n, int64_t block, const Body& body) {
  ParallelFor(threads, (n + block - 1) / block, [&](int64_t i) {
    const int64_t begin = i * block, end = begin + block < n ? begin + block : n;
    body(begin, end);
  });
}

}  // namespace temper
