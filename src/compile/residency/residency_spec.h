// ResidencySpec: where values live and what they may take there: the input of residency
// (compile/residency/residency.h).
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/units.h"
#include "compile/rates/device_rates.h"
#include "compile/rates/link_rates.h"
#include "tensor/tier.h"

namespace temper {

// Homes of persistent values by name; of those that are not in it, the device.
using Homes = std::map<std::string, Tier>;

// 8 MiB of each state: long enough for a disk (disk/disk_tier.cc has 8 MiB in flight), and few beside the copies of
// neighbours. Multiples of 2048 elements are whole blocks of a disk even in bf16.
inline constexpr int64_t kUpdatePart = int64_t{2} << 20;

struct ResidencySpec {
  const Homes* homes = nullptr;
  // Where activations wait for the backward pass; nullopt: on the device where there is room, else at the host.
  std::optional<Tier> activations = Tier::kDevice;
  bool keep = true;  // whether copies may serve more than one stretch of touches
  // What activations, copies and scratch may take of the device, and copies of the host.
  Bytes device, host;
  const DeviceRates* rates = nullptr;
  LinkRates links;
  int threads = 1;
  // States on the disk of weights with more elements are updated so many at a time, so that the host need not hold
  // them whole. REQUIRES: positive; any number gives the same bits.
  int64_t update_part = kUpdatePart;
  // Of a step of one micro-batch: gradients that live on the device take their bytes only from where they are made on
  // (compile/layout/step_layout.h), so that they are among what `device` has room for.
  bool gradients_last = false;
};

}  // namespace temper
