// LinkRates: the speed of moves between neighbouring memory tiers, as data, alone and beside kernels. A cluster file
// states it (cluster/cluster.h) or `temper doctor --calibrate` measures it.
#pragma once

#include "base/units.h"
#include "tensor/tier.h"

namespace temper {

// How much longer kernels and background moves take while both run, as a fraction of the time of each alone, if the
// cores that compute also copy the data.
struct Contention {
  double slows = 0;   // kernels
  double slowed = 0;  // the move
};

// Bytes per second between neighbours, each way, without contention; latency is the fixed cost of a move.
struct LinkRates {
  double host_to_device = 0, device_to_host = 0, disk_read = 0, disk_write = 0;
  Seconds latency;
  Contention copies = {}, disk = {};  // of moves between host and device; from and to the disk

  // The duration of one move. A move between disk and device runs at the disk's rate: the host's memory is faster.
  Seconds SecondsOf(Tier from, Tier to, Bytes bytes) const;
  // The same beside kernels.
  Seconds SecondsBesideKernels(Tier from, Tier to, Bytes bytes) const;
};

}  // namespace temper
