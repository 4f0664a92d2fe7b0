// The host's memory and the disk, for a run whose Program does not keep everything on the device.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "disk/disk_tier.h"
#include "program/program.h"
#include "run/opened_model.h"
#include "runtime/arena.h"
#include "runtime/executor.h"

namespace temper {

struct FarArenas {
  std::unique_ptr<KernelTable> host_kernels;  // for a run on a device: they update states that live on the host
  int host_threads = 1;
  std::unique_ptr<Arena> host;
  std::unique_ptr<DiskTier> disk;
  std::set<std::string> mapped;  // weights that are read from the model's own files and never loaded

  FarTiers tiers() const {
    return {.host = host.get(), .disk = disk.get(), .host_kernels = host_kernels.get(), .host_threads = host_threads};
  }
};

// Host memory for transfers to and from the disk. It is planned, in addition to Program::host.
Bytes TransferBuffers(const Program& program);

// Reserves both in full. With a `device` (else nullptr), which outlives them, the host's memory
// is pinned, and `threads` update the states that live there. `folder`: of the spill file,
// which has no name and vanishes with the process. `model`: stores the frozen weights; unused
// if none is on the disk. Errors: too little memory or space; no folder for values to spill.
Result<FarArenas> ReserveFar(const Program& program, const std::string& folder, const OpenedModel& model,
                             Device* device, int threads);

}  // namespace temper
