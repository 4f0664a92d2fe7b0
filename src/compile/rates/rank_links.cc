#include "compile/rates/rank_links.h"

#include <algorithm>
#include <map>
#include <vector>

namespace temper {

RankLinks RankLinks::Typical(int ranks_per_host) {
  return {.inside = {50e9, {10e-6}}, .between = {12.5e9, {20e-6}}, .ranks_per_host = ranks_per_host};
}

namespace {

// The number of hosts with ranks of a group, and the most of its ranks on one host. Ranks fill hosts in order.
struct GroupShape {
  int hosts = 1, most_on_a_host = 1, size = 1;
};

GroupShape ShapeOf(const RankLinks& links, const Mesh& mesh, AxisSet axes) {
  std::map<int, int> on_host;
  const std::vector<int> group = mesh.Group(axes, 0);
  for (const int rank : group) ++on_host[rank / links.ranks_per_host];
  GroupShape shape{.hosts = static_cast<int>(on_host.size()), .size = static_cast<int>(group.size())};
  for (const auto& [host, ranks] : on_host) shape.most_on_a_host = std::max(shape.most_on_a_host, ranks);
  return shape;
}

}  // namespace

double ShareBetweenHosts(const RankLinks& links, const Mesh& mesh, AxisSet axes) {
  const GroupShape group = ShapeOf(links, mesh, axes);
  return group.hosts == 1 ? 0 : static_cast<double>(group.hosts) / group.size;
}

Seconds CollectiveSeconds(const RankLinks& links, const Mesh& mesh, AxisSet axes, Bytes sent, int turns) {
  const GroupShape group = ShapeOf(links, mesh, axes);
  const int on_host = std::min(mesh.ranks(), links.ranks_per_host);
  const Link& inside = links.inside;
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
    seconds = std::max(seconds, crossing * groups_beside / links.between.bytes_per_second);
    latency = std::max(latency, links.between.latency.v);
  }
  return {seconds + latency * turns};
}

}  // namespace temper
