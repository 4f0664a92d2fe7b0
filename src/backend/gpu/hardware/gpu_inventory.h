// Turns what the vendor's driver reports into what a user needs to know: the GPUs that can be used, and one line for
// each that cannot. Pure data, so that tests can describe any machine.
#pragma once

#include <string>
#include <vector>

#include "backend/gpu/gpu_device.h"
#include "base/status.h"
#include "base/units.h"

namespace temper::gpu {

enum class DriverState { kWorks, kMissing, kTooOld, kFailed };

struct DriverReport {
  bool amd = false;  // else NVIDIA's
  DriverState state = DriverState::kWorks;
  std::string failure;          // for kFailed: the driver's message,
  int code = 0;                 // and its number
  int driver = 0, runtime = 0;  // versions as their vendor numbers them
  struct Card {
    std::string name;
    int major = 0, minor = 0;  // compute capability; of AMD's, the digits of gfx942 as 9 and 42
    Bytes memory;
    std::string uuid;  // "": not known
  };
  std::vector<Card> cards;
  Result<std::string> products = std::string();   // the version of the library of matrix products, or why there is none
  Result<std::string> attention = std::string();  // the same for the library of attention; "" if none is needed
};

// Errors: no driver, one too old, no GPU.
Result<GpuInventory> InventoryOf(const DriverReport& report);
// Whether GPU `index` can be opened.
Status CheckUsable(const DriverReport& report, const GpuInventory& inventory, int index);
// This build has no kernels for this card; `reason` is the driver's.
std::string NoKernelsFor(const GpuFacts& gpu, bool amd, const std::string& reason);
// An arena of `size` did not fit. `holders`: known other processes there (memory_holders.h), or "".
std::string TooLittleFree(const std::string& card, Bytes size, Bytes free, Bytes total, const std::string& holders);

}  // namespace temper::gpu
