// MemorySpec: what a run may take of each memory tier, what was asked for, and what moves and kernels cost there.
#pragma once

#include <limits>
#include <optional>

#include "compile/rates/device_rates.h"
#include "compile/residency/residency.h"
#include "tensor/tier.h"

namespace temper {

enum class TierPolicy : uint8_t {
  kAuto,    // the device for what it holds best, farther tiers for the rest
  kDevice,  // everything on the device
  kHost,    // weights, gradients and optimizer states parked at the host, fetched for each use
};

inline constexpr Bytes kNoLimit{std::numeric_limits<int64_t>::max()};

struct MemorySpec {
  TierPolicy policy = TierPolicy::kAuto;
  Bytes device = kNoLimit, host = kNoLimit;
  bool disk = false;  // whether there is a place on a disk to write to
  // Where a class of values lives, whatever the policy says.
  std::optional<Tier> weights, gradients, optimizer, activations;
  DeviceRates rates = TypicalHost();       // of the device
  DeviceRates host_rates = TypicalHost();  // of kernels on what lives in the host's memory
  // Copies by a thread on one of two cores that compute: measured on an Emerald Rapids, they and kernels took 1.2
  // to 1.8 and 1.4 to 2.1 times as long beside each other.
  LinkRates links = {.host_to_device = 8e9,
                     .device_to_host = 8e9,
                     .disk_read = 1e9,
                     .disk_write = 1e9,
                     .latency = {20e-6},
                     .copies = {.slows = 0.6, .slowed = 0.5}};
  int64_t update_part = kUpdatePart;  // ResidencySpec's; smaller for the small models of tests
  // Of the device's kernels: the loss may be cut finer for speed. Where it is false (a GPU), only where nothing else
  // fits.
  bool loss_chunks_keep_bits = true;

  bool IsLimited() const { return device != kNoLimit; }
  // Nothing is asked for: everything lies on the device.
  bool IsOpen() const {
    return policy != TierPolicy::kHost && !IsLimited() && !weights && !gradients && !optimizer && !activations;
  }
};

}  // namespace temper
