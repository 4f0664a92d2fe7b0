// LinkRates: what a move between neighbouring memory tiers takes, as data, alone and beside kernels. A cluster file
// states it (plan/cluster.h), `temper doctor --calibrate` measures it.
#pragma once

#include "base/units.h"
#include "tensor/tier.h"

namespace temper {

// How much longer kernels take, and moves in the background, while both run, as a part of what each takes alone: where
// what moves is copied by the cores that compute.
struct Contention {
  double slows = 0;   // kernels
  double slowed = 0;  // the move
};

// Bytes per second between neighbours, each way, with nothing beside them; latency is what a move costs beside its
// bytes.
struct LinkRates {
  double host_to_device = 0, device_to_host = 0, disk_read = 0, disk_write = 0;
  Seconds latency;
  Contention copies = {}, disk = {};  // of moves between host and device; from and to the disk

  // Of one move. The disk is reached from the device at the disk's rate: the host's memory is faster.
  Seconds SecondsOf(Tier from, Tier to, Bytes bytes) const;
  // The same beside kernels.
  Seconds SecondsBesideKernels(Tier from, Tier to, Bytes bytes) const;
};

}  // namespace temper
