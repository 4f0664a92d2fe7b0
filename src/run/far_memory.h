// The host's memory and the disk of a run whose Program does not have everything on the device.
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
  std::unique_ptr<KernelTable> host_kernels;  // of a run on a device: what updates states that live at the host
  int host_threads = 1;
  std::unique_ptr<Arena> host;
  std::unique_ptr<DiskTier> disk;
  std::set<std::string> mapped;  // weights that are read from the model's own files, and never loaded

  FarTiers tiers() const {
    return {.host = host.get(), .disk = disk.get(), .host_kernels = host_kernels.get(), .host_threads = host_threads};
  }
};

// Host memory for what is on its way to and from the disk, beside Program::host: planned like that.
Bytes TransferBuffers(const Program& program);

// Reserves both in full; beside a `device` (else nullptr), which outlives them, the host's memory is pinned, and what
// lives there is updated on `threads`. `folder`: of the spill file, which has no name there and is gone with the
// process. `model`: where frozen weights are stored; not asked where none lies on the disk. Errors: too little memory
// or space; something to spill, and no folder for it.
Result<FarArenas> ReserveFar(const Program& program, const std::string& folder, const OpenedModel& model,
                             Device* device, int threads);

}  // namespace temper
