// Cluster: the machines that a run is planned for, as data: read from a YAML file, from a built-in preset
// (examples/clusters/), or measured on this machine (`temper doctor --calibrate`). Format: docs/formats/cluster.md.
//
// A value type; reading it opens one file. Files are untrusted:
// an error names the line, the mistake and the known keys.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/units.h"
#include "compile/rates/device_rates.h"
#include "compile/rates/rank_links.h"
#include "compile/residency/residency.h"

namespace temper {

struct Cluster {
  std::string name;
  std::string device;      // "H100 SXM5 80 GB"
  std::string date;        // of the measurement, YYYY-MM-DD; empty: not measured, or unknown
  std::string other_load;  // what else used the machine while it was measured; empty: nothing, or unknown

  double compute_capability = 0;  // of an NVIDIA device; 0: not stated
  Bytes memory;                   // of a device
  Bytes reserve;                  // part of `memory` that driver, libraries and communicators take

  int hosts = 1, devices_per_host = 1;
  Bytes host_memory;                     // 0: not stated
  double host_bandwidth = 0;             // bandwidth that kernels on the host reach; 0: not stated
  double disk_read = 0, disk_write = 0;  // bytes per second of a host, shared by its ranks; 0: not stated
  // Bytes per second between a host's memory and one of its devices; 0: not stated.
  double to_device = 0, from_device = 0;
  Link between_hosts;                // per host: its devices share it
  double price_per_device_hour = 0;  // 0: not given
  std::string currency = "USD";

  // The devices are shares of one machine: ranks divide its memory and its cores, and a background collective takes
  // time from kernels. `shares` then has the speed of one rank for each number of ranks.
  bool shared = false;
  bool packs = false;  // the machine at hand, if its products read packed weights (RankMemory::packs); of no file
  struct Share {
    DeviceRates rates;
    Link link;  // to others on the host
    // Peak FLOP per second of products: the base of MFU. bf16_peak 0: the device has no bf16 hardware, so values are
    // stored in bf16 and computed in f32.
    double f32_peak = 0, bf16_peak = 0;
    // For a shared machine, whose cores do the copies between tiers: bytes per second of a copy in its memory (0: not
    // stated), and the contention of copies, and of moves from and to the disk, with kernels.
    double copies = 0;
    Contention beside_copies, beside_disk;
    double peak(DType dtype) const { return dtype == DType::kBF16 && bf16_peak > 0 ? bf16_peak : f32_peak; }
  };
  std::map<int, Share> shares;  // by number of ranks on the machine; not shared: only 1

  // Temper's kernels need bf16 arithmetic and asynchronous copies (backend/gpu/hardware/gpu_inventory.cc).
  static constexpr double kLeastComputeCapability = 8.0;
  bool has_kernels() const { return compute_capability == 0 || compute_capability >= kLeastComputeCapability; }
  bool has_bf16() const { return shares.begin()->second.bf16_peak > 0; }
  int devices() const { return hosts * devices_per_host; }

  // The resources of one rank if `ranks` run on a host. HostMemoryOf:
  // besides the device's memory; none if both are one memory.
  Bytes MemoryOf(int ranks) const;
  Bytes HostMemoryOf(int ranks) const;
  LinkRates LinksOf(int ranks) const;
  RankLinks RankLinksOf(int ranks) const;
  DeviceRates HostRatesOf(int ranks) const;
  const Share& ShareOf(int ranks) const;
};

// `where` names the text in errors.
Result<Cluster> ParseCluster(std::string_view text, const std::string& where);

// The text that ParseCluster reads back to the same cluster; measured clusters are saved this way.
std::string PrintCluster(const Cluster& cluster);

// The built-in presets, by name.
struct ClusterPreset {
  std::string_view name, text;
};
const std::vector<ClusterPreset>& ClusterPresets();

// `name`: a preset ("T4-16", or "T4" if no other name begins so), the path of a file, or several cards of a preset in
// one host ("4xRTX4090"). Errors: none of these; the message lists the presets.
Result<std::string> ReadCluster(Env& env, const std::string& name);  // its text
Result<Cluster> OpenCluster(Env& env, const std::string& name);

}  // namespace temper
