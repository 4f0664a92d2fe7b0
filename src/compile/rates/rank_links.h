// RankLinks: the links between ranks, as data, and the seconds of collectives on them. A cluster file states them
// (cluster/cluster.h), or `temper doctor --calibrate` measures them.
#pragma once

#include "base/units.h"
#include "tensor/mesh.h"

namespace temper {

// The link from one rank to others in a collective: bytes per second, and additional seconds per turn.
struct Link {
  double bytes_per_second = 0;
  Seconds latency;
};

// Ranks fill hosts in order.
struct RankLinks {
  Link inside;   // from a rank to others on its host
  Link between;  // of a host to others: its ranks share it
  int ranks_per_host = 1;

  // What decisions between collectives count with (compile/mesh/decisions.h), too: links between GPUs of a host, and a
  // network of 100 Gbit/s.
  static RankLinks Typical(int ranks_per_host);
};

// The seconds of a collective in which each rank of a group sends `sent` bytes in total (Cost::sent) in `turns` turns
// of a ring. `axes`: the axes along which the group's ranks differ. Parallel groups do the same at the same time and
// share the hosts' network.
Seconds CollectiveSeconds(const RankLinks& links, const Mesh& mesh, AxisSet axes, Bytes sent, int turns);

// The share of a group's bytes along a ring that leaves a host: of n ranks on h hosts, h send to another host.
double ShareBetweenHosts(const RankLinks& links, const Mesh& mesh, AxisSet axes);

}  // namespace temper
