// ResidencySpec: the tiers of values, and the memory that they may take: the input of residency
// (compile/residency/residency.h).
#pragma once

#include <optional>
#include <string>
#include <unordered_map>

#include "base/units.h"
#include "compile/rates/device_rates.h"
#include "compile/rates/link_rates.h"
#include "tensor/tier.h"

namespace temper {

// Home tiers of persistent values by name; the device for all others.
using Homes = std::unordered_map<std::string, Tier>;

// 8 MiB of each state: long enough for a disk (disk/disk_tier.cc has 8 MiB in flight), and small beside the copies of
// neighbours. Multiples of 2048 elements are whole disk blocks even in bf16.
inline constexpr int64_t kUpdatePart = int64_t{2} << 20;

// Elements of a part for a step that trains `trained` elements: at least `least`, and more for more than 8.6 billion,
// whose Program would otherwise be millions of moves long.
constexpr int64_t UpdatePartFor(int64_t trained, int64_t least) {
  constexpr int64_t kMostParts = 4096, kWhole = int64_t{1} << 20;
  const int64_t part = trained / kMostParts;
  return part <= least ? least : (part + kWhole - 1) / kWhole * kWhole;
}

struct ResidencySpec {
  const Homes* homes = nullptr;
  // The tier of activations between forward and backward; nullopt: the device if there is room, else the host.
  std::optional<Tier> activations = Tier::kDevice;
  bool keep = true;  // whether a copy may be kept between separate touches
  // Bytes that activations, copies and scratch may take on the device, and copies on the host.
  Bytes device, host;
  const DeviceRates* rates = nullptr;
  LinkRates links;
  int threads = 1;
  // Elements of a weight whose states on the disk are updated at a time, so that the host need not hold them whole.
  // REQUIRES: positive; any number gives the same bits.
  int64_t update_part = kUpdatePart;
  // The step has one micro-batch: gradients on the device take memory only from the node on that creates them
  // (compile/layout/step_layout.h), so they count toward `device`.
  bool gradients_last = false;
};

}  // namespace temper
