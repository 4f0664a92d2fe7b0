#include "plan/cluster.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "format/quoted.h"

namespace temper {

Bytes Cluster::MemoryOf(int ranks) const {
  return (shared ? memory / std::max(ranks, 1) : memory) - reserve;
}

Bytes Cluster::HostMemoryOf(int ranks) const {
  return shared ? Bytes{} : host_memory / std::max(ranks, 1);
}

LinkRates Cluster::LinksOf(int ranks) const {
  // Defaults for missing figures: a copy in one memory reads and writes; PCIe 3 x16; a SATA disk.
  constexpr double kPcie3 = 12e9, kSata = 0.5e9;
  const Share& share = ShareOf(ranks);
  const OpRate& copy = share.rates.Of(Op::kCast, OpClass::kMemory, DType::kF32);
  const double unsaid = share.copies > 0         ? share.copies
                        : shared && copy.known() ? copy.BytesPerSecond(MiB(64)) / 2
                                                 : kPcie3;
  const auto or_else = [](double said, double otherwise) { return said > 0 ? said : otherwise; };
  return {.host_to_device = or_else(to_device, unsaid),
          .device_to_host = or_else(from_device, unsaid),
          .disk_read = or_else(disk_read, kSata) / std::max(ranks, 1),
          .disk_write = or_else(disk_write, kSata) / std::max(ranks, 1),
          .latency = {20e-6},
          .copies = share.beside_copies,
          .disk = share.beside_disk};
}

DeviceRates Cluster::HostRatesOf(int ranks) const {
  if (shared) return ShareOf(ranks).rates;
  DeviceRates rates = TypicalHost();
  if (host_bandwidth <= 0) return rates;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    OpRate rate = rates.Of(Op::kAdd, OpClass::kMemory, dtype);
    rate.bandwidth = {{KiB(1), host_bandwidth / std::max(ranks, 1)}};
    rates.SetClass(OpClass::kMemory, dtype, std::move(rate));
  }
  return rates;
}

const Cluster::Share& Cluster::ShareOf(int ranks) const {
  TEMPER_CHECK(!shares.empty()) << "cluster " << name << " states no rates";
  const auto it = shares.lower_bound(shared ? ranks : 1);
  return it == shares.end() ? shares.rbegin()->second : it->second;
}

Result<std::string> ReadCluster(Env& env, const std::string& name) {
  for (const ClusterPreset& preset : ClusterPresets()) {
    if (preset.name == name) return std::string(preset.text);
  }
  if (env.IsFile(name)) return ReadTextFile(env, name, MiB(1));
  std::string known;
  for (const ClusterPreset& preset : ClusterPresets())
    known += fmt::format("{}{}", known.empty() ? "" : ", ", preset.name);
  return NotFound(fmt::format("cluster {} is neither a file nor a preset. Presets: this, {}", Quoted(name), known));
}

Result<Cluster> OpenCluster(Env& env, const std::string& name) {
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadCluster(env, name));
  const bool preset = std::any_of(ClusterPresets().begin(), ClusterPresets().end(),
                                  [&](const ClusterPreset& p) { return p.name == name; });
  return ParseCluster(text, preset ? "cluster " + name : name);
}

namespace {

// The number of hosts with ranks of a group, and the most of its ranks on one host. Ranks fill hosts in order.
struct GroupShape {
  int hosts = 1, most_on_a_host = 1, size = 1;
};

GroupShape ShapeOf(const Cluster& cluster, const Mesh& mesh, AxisSet axes) {
  std::map<int, int> on_host;
  const std::vector<int> group = mesh.Group(axes, 0);
  for (const int rank : group) ++on_host[rank / cluster.devices_per_host];
  GroupShape shape{.hosts = static_cast<int>(on_host.size()), .size = static_cast<int>(group.size())};
  for (const auto& [host, ranks] : on_host) shape.most_on_a_host = std::max(shape.most_on_a_host, ranks);
  return shape;
}

}  // namespace

double ShareBetweenHosts(const Cluster& cluster, const Mesh& mesh, AxisSet axes) {
  const GroupShape group = ShapeOf(cluster, mesh, axes);
  return group.hosts == 1 ? 0 : static_cast<double>(group.hosts) / group.size;
}

Seconds CollectiveSeconds(const Cluster& cluster, const Mesh& mesh, AxisSet axes, Bytes sent, int turns) {
  const GroupShape group = ShapeOf(cluster, mesh, axes);
  const int on_host = std::min(mesh.ranks(), cluster.devices_per_host);
  const Link& inside = cluster.ShareOf(on_host).link;
  const double bytes = static_cast<double>(sent.v);
  double seconds = 0;
  if (group.most_on_a_host > 1) seconds = bytes / inside.bytes_per_second;
  double latency = group.most_on_a_host > 1 ? inside.latency.v : 0;
  if (group.hosts > 1) {
    // A ring in host order: a byte crosses each host's edge once, whichever rank sends it. Each rank sends (n-1)/n of
    // the whole; (h-1)/h of the whole comes from other hosts.
    const double n = group.size, h = group.hosts;
    const double crossing = bytes * (n / (n - 1)) * ((h - 1) / h);
    const int groups_beside = std::max(1, on_host / group.most_on_a_host);
    seconds = std::max(seconds, crossing * groups_beside / cluster.between_hosts.bytes_per_second);
    latency = std::max(latency, cluster.between_hosts.latency.v);
  }
  return {seconds + latency * turns};
}

}  // namespace temper
