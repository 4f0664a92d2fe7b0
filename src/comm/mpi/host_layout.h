// Which ranks share a host, and how a mesh's group is spread over hosts. Pure data, the same on all ranks.
#pragma once

#include <cstddef>
#include <vector>

namespace temper {

struct HostLayout {
  std::vector<int> host_of;             // per rank
  std::vector<std::vector<int>> ranks;  // per host, ascending

  // `leaders`: per rank, any number that is the same for all ranks of a host.
  static HostLayout FromLeaders(const std::vector<int>& leaders);
  int place(int rank) const;  // the rank's index among those of its host
};

// Members are numbered by their place in the group. What a host gets from a member of another host, and what it sends
// to it, goes through one of its own members, the deputy: deputies share this work evenly.
class GroupLayout {
 public:
  // `ranks`: the group in the mesh's order.
  GroupLayout(const HostLayout& hosts, std::vector<int> ranks, int self);

  const std::vector<int>& ranks() const { return ranks_; }
  int index() const { return index_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  bool one_host() const { return members_.size() == 1; }
  // Members on each host, in the group's order; hosts in the order of their first members.
  const std::vector<std::vector<int>>& hosts() const { return members_; }
  int host_of(int member) const { return host_of_[static_cast<size_t>(member)]; }
  int own_host() const { return host_of(index_); }
  // Index of a member among those of its host.
  int place(int member) const { return place_[static_cast<size_t>(member)]; }
  // REQUIRES: host_of(owner) != host.
  int Deputy(int owner, int host) const;
  // Members of other hosts whose deputy on its host is member `m`.
  std::vector<int> ChargesOf(int m) const;
  // Deputies for member `m` on the other hosts, in the order of hosts.
  std::vector<int> DeputiesFor(int m) const;
  // The most messages at once for any member: those of its charges and its deputies.
  int busiest() const;

 private:
  std::vector<int> ranks_, host_of_, place_;
  std::vector<std::vector<int>> members_;
  int index_ = 0;
};

}  // namespace temper
