// The kernel's counters of a process: they tell whether it works without asking it.
#pragma once

#include <cstdint>

namespace temper {

struct ProcessActivity {
  bool known = false;
  char state = '?';      // of its first thread, as in /proc/<pid>/stat: R running, S sleeping, T stopped, ...
  int64_t ticks = 0;     // of processor time, sysconf(_SC_CLK_TCK) a second
  int64_t bytes = 0;     // read and written
  bool blocked = false;  // a thread waits for the kernel (a disk, a network file system)

  bool stopped() const { return state == 'T' || state == 't'; }
  // Whether it has worked since `before`, taken this many seconds ago: more than a timer or a progress line takes.
  bool WorkedSince(const ProcessActivity& before, double seconds) const;
};

// Of thread `tid` of process `pid`; of the whole process if tid is 0. Allocates nothing.
ProcessActivity ActivityOf(int pid, int tid = 0);

}  // namespace temper
