// Cluster: the machines a run is planned for, as data: read from a YAML file, from a preset that is part of the program
// (examples/clusters/), or measured on this machine (`temper doctor --calibrate`). Format: docs/formats/cluster.md.
//
// A value type; reading it opens one file. Files are untrusted: an error names the line, what is wrong and what is
// known.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/units.h"
#include "compile/rates/device_rates.h"
#include "compile/residency/residency.h"
#include "tensor/mesh.h"

namespace temper {

// What one rank gives others in a collective: bytes per second, and the seconds that each turn costs besides.
struct Link {
  double bytes_per_second = 0;
  Seconds latency;
};

struct Cluster {
  std::string name;
  std::string device;  // "H100 SXM5 80 GB"

  Bytes memory;   // of a device
  Bytes reserve;  // of that: what driver, libraries and communicators take; not ours to plan

  int hosts = 1, devices_per_host = 1;
  Bytes host_memory;                     // 0: not said
  double host_bandwidth = 0;             // of that, which kernels on the host reach; 0: not said
  double disk_read = 0, disk_write = 0;  // bytes per second of a host, which its ranks share; 0: not said
  // Bytes per second between a host's memory and one of its devices; 0: not said.
  double to_device = 0, from_device = 0;
  Link between_hosts;                // per host: its devices share it
  double price_per_device_hour = 0;  // 0: not given
  std::string currency = "USD";

  // The devices are shares of one machine: ranks divide its memory and its cores, and a collective in the background
  // takes the time of kernels. Then `shares` says what one of so many ranks computes and sends.
  bool shared = false;
  struct Share {
    DeviceRates rates;
    Link link;  // to others on the host
    // FLOP per second that products could reach at most: what MFU is a ratio to. bf16 0: the device has no hardware for
    // it, so values are stored in it and computed in f32.
    double f32_peak = 0, bf16_peak = 0;
    // Of a machine that is shared, whose cores copy what moves between tiers: bytes per second of a copy in its memory,
    // 0: not said; and what it, and moves from and to the disk, cost the kernels beside them.
    double copies = 0;
    Contention beside_copies, beside_disk;
    double peak(DType dtype) const { return dtype == DType::kBF16 && bf16_peak > 0 ? bf16_peak : f32_peak; }
  };
  std::map<int, Share> shares;  // by ranks on the machine; not shared: {1, ..}

  bool has_bf16() const { return shares.begin()->second.bf16_peak > 0; }
  int devices() const { return hosts * devices_per_host; }

  // What one rank has where `ranks` run on a host. HostMemoryOf: beside the device's; where both are one memory, none.
  Bytes MemoryOf(int ranks) const;
  Bytes HostMemoryOf(int ranks) const;
  LinkRates LinksOf(int ranks) const;
  DeviceRates HostRatesOf(int ranks) const;
  const Share& ShareOf(int ranks) const;
};

// `where` names the text in errors.
Result<Cluster> ParseCluster(std::string_view text, const std::string& where);

// The text that ParseCluster reads back to the same cluster: how a measured one is kept.
std::string PrintCluster(const Cluster& cluster);

// The presets that are part of the program, by name.
struct ClusterPreset {
  std::string_view name, text;
};
const std::vector<ClusterPreset>& ClusterPresets();

// `name`: a preset, or the path of a file. Errors: neither; lists the presets.
Result<Cluster> OpenCluster(Env& env, const std::string& name);

// The seconds of a collective in which each rank of a group sends `sent` bytes in all (Cost::sent), at `turns` turns of
// a ring. `axes`: those the group's ranks differ along. Ranks lie on hosts in their order; groups beside this one do
// the same at the same time and share the hosts' network.
Seconds CollectiveSeconds(const Cluster& cluster, const Mesh& mesh, AxisSet axes, Bytes sent, int turns);

// Of what a group's ranks send along a ring, the share that leaves a host: of n ranks on h hosts, h pass on to another.
double ShareBetweenHosts(const Cluster& cluster, const Mesh& mesh, AxisSet axes);

}  // namespace temper
