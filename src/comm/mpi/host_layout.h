// Which ranks share a host, and how a group of a mesh lies on hosts. Pure data, the same on all ranks.
#pragma once

#include <cstddef>
#include <vector>

namespace temper {

struct HostLayout {
  std::vector<int> host_of;             // per rank
  std::vector<std::vector<int>> ranks;  // per host, ascending

  // `leaders`: per rank, any number that is the same for the ranks of a host.
  static HostLayout FromLeaders(const std::vector<int>& leaders);
  int place(int rank) const;  // of the rank among those of its host
};

// Members are numbered by their place in the group. What one host needs of a member of another comes, and what it gives
// to it goes, through one of its own members, the deputy: deputies share this work evenly.
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
  // Place of a member among those of its host.
  int place(int member) const { return place_[static_cast<size_t>(member)]; }
  // REQUIRES: host_of(owner) != host.
  int Deputy(int owner, int host) const;
  // Members of other hosts for whom member `m` is the deputy on its host.
  std::vector<int> ChargesOf(int m) const;
  // Deputies for member `m` on the other hosts, in the order of hosts.
  std::vector<int> DeputiesFor(int m) const;
  // The most messages at once that any member has to do with: its charges and its deputies.
  int busiest() const;

 private:
  std::vector<int> ranks_, host_of_, place_;
  std::vector<std::vector<int>> members_;
  int index_ = 0;
};

}  // namespace temper
