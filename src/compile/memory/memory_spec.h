// MemorySpec: how much of each memory tier a run may take, requested tiers, and the cost of moves and kernels.
#pragma once

#include <limits>
#include <optional>
#include <string>

#include "compile/rates/device_rates.h"
#include "compile/rates/rank_links.h"
#include "compile/residency/residency.h"
#include "settings/memory.h"
#include "tensor/tier.h"

namespace temper {

// For RankLinks::ranks_per_host: all ranks are on one.
inline constexpr int kOneHost = std::numeric_limits<int>::max();

inline constexpr Bytes kNoLimit{std::numeric_limits<int64_t>::max()};

struct MemorySpec {
  TierPolicy policy = TierPolicy::kAuto;
  Bytes device = kNoLimit, host = kNoLimit;
  bool disk = false;  // whether a folder on a disk is configured
  // The tier of a class of values; overrides the policy.
  std::optional<Tier> weights, gradients, optimizer, activations;
  TrainedMatrices matrices = TrainedMatrices::kAuto;
  std::string rates_source = "typical";    // where the next three come from, for messages
  DeviceRates rates = TypicalHost();       // of the device
  DeviceRates host_rates = TypicalHost();  // of kernels on values in host memory
  // Copies by a thread on one of two cores that compute: measured on an Emerald Rapids, copies took 1.2 to 1.8 times
  // and kernels 1.4 to 2.1 times as long while both ran.
  LinkRates links = {.host_to_device = 8e9,
                     .device_to_host = 8e9,
                     .disk_read = 1e9,
                     .disk_write = 1e9,
                     .latency = {20e-6},
                     .copies = {.slows = 0.6, .slowed = 0.5}};
  RankLinks ranks = RankLinks::Typical(kOneHost);
  bool shared = true;  // ranks of a host share its cores (StepRates::shared)
  // Tries fewer choices of tiers: what fits is the same, but the step found may be slower than what a whole search
  // finds.
  bool quick = false;
  // With quick: takes the first placement that fits, for plans of which only that matters. It goes in large steps, and
  // may miss one: 405 billion parameters on one RTX 3090 in micro-batches of 4 rows fit, and did not so.
  bool first_that_fits = false;
  int64_t update_part = kUpdatePart;  // ResidencySpec's; smaller for the small models of tests
  // Whether smaller chunks of the loss keep its bits on the device's kernels, so that they may be chosen for speed. If
  // false (a GPU), they are used only if nothing else fits.
  bool loss_chunks_keep_bits = true;

  // Whether no option keeps masters away from the device. On the way to the device they would be twice as many bytes as
  // what is cast from them.
  bool MayCast() const {
    const auto away = [](std::optional<Tier> fixed) { return fixed.value_or(Tier::kDevice) != Tier::kDevice; };
    return policy != TierPolicy::kHost && !away(weights) && !away(optimizer);
  }
  bool IsLimited() const { return device != kNoLimit; }
  // No limits and no requests: everything lives on the device.
  bool IsOpen() const {
    return policy != TierPolicy::kHost && !IsLimited() && !weights && !gradients && !optimizer && !activations;
  }
};

}  // namespace temper
