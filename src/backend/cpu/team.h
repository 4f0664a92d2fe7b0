// A team of OpenMP threads over a fixed partition. The partition depends on the number of items alone, so a kernel
// whose items are independent gives the same bits on any number of threads; which thread takes which item only moves
// caches.
//
// Nothing is allocated after the first call with a given number of threads: libgomp keeps its last team as long as the
// size asked for is the same, which is why a team is always of full size or not made at all.
// Not for files compiled for an instruction set (isa.h): they get a range and know no threads.
#pragma once

#include <omp.h>

#include <cstdint>

namespace temper {

// Processors that this process may run on. Not what the main thread may: OMP_PROC_BIND ties that to one of them.
inline int AvailableProcessors() {
  return omp_get_num_procs();
}

// Calls body(i) for each i in [0, n): thread k takes the k-th of `threads` contiguous runs, whose lengths differ by at
// most one. `body` must not throw. REQUIRES: threads >= 1.
template <class Body>
void ParallelFor(int threads, int64_t n, const Body& body) {
  if (threads == 1 || n <= 1) {
    for (int64_t i = 0; i < n; ++i) body(i);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    // The runtime may give fewer threads than asked for (OMP_THREAD_LIMIT): divide by what came.
    const int64_t team = omp_get_num_threads(), self = omp_get_thread_num();
    const int64_t end = n * (self + 1) / team;
    for (int64_t i = n * self / team; i < end; ++i) body(i);
  }
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
