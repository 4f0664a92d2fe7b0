// The host's memory and the disk of a run whose Program does not have everything on the device.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "cli/opened_model.h"
#include "disk/disk_tier.h"
#include "program/program.h"
#include "runtime/arena.h"
#include "runtime/executor.h"
#include "train/run_config.h"

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

// Reserves both in full; beside a `device` (else nullptr), which outlives them, the host's memory is pinned. `model`:
// where frozen weights are stored; not asked where none lies on the disk. Errors: too little memory or space; weights
// that cannot stay where they are, and no folder to copy them to.
Result<FarArenas> ReserveFar(const Program& program, const RunConfig& config, const OpenedModel& model, Device* device);

}  // namespace temper
