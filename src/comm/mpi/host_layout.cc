#include "comm/mpi/host_layout.h"

#include <algorithm>
#include <map>

#include "base/check.h"

namespace temper {

HostLayout HostLayout::FromLeaders(const std::vector<int>& leaders) {
  HostLayout layout;
  std::map<int, int> host_of_leader;
  for (size_t r = 0; r < leaders.size(); ++r) {
    const auto [at, is_new] = host_of_leader.try_emplace(leaders[r], static_cast<int>(layout.ranks.size()));
    if (is_new) layout.ranks.emplace_back();
    layout.host_of.push_back(at->second);
    layout.ranks[static_cast<size_t>(at->second)].push_back(static_cast<int>(r));
  }
  return layout;
}

int HostLayout::place(int rank) const {
  const std::vector<int>& same = ranks[static_cast<size_t>(host_of[static_cast<size_t>(rank)])];
  return static_cast<int>(std::find(same.begin(), same.end(), rank) - same.begin());
}

GroupLayout::GroupLayout(const HostLayout& hosts, std::vector<int> ranks, int self) : ranks_(std::move(ranks)) {
  std::map<int, int> known;  // host of the layout -> host of the group
  for (int m = 0; m < size(); ++m) {
    const int rank = ranks_[static_cast<size_t>(m)];
    if (rank == self) index_ = m;
    const auto [at, is_new] =
        known.try_emplace(hosts.host_of[static_cast<size_t>(rank)], static_cast<int>(members_.size()));
    if (is_new) members_.emplace_back();
    std::vector<int>& members = members_[static_cast<size_t>(at->second)];
    host_of_.push_back(at->second);
    place_.push_back(static_cast<int>(members.size()));
    members.push_back(m);
  }
  TEMPER_CHECK(ranks_[static_cast<size_t>(index_)] == self) << "rank " << self << " is not in its group";
}

int GroupLayout::Deputy(int owner, int host) const {
  const std::vector<int>& members = members_[static_cast<size_t>(host)];
  return members[static_cast<size_t>(place(owner)) % members.size()];
}

std::vector<int> GroupLayout::ChargesOf(int m) const {
  std::vector<int> charges;
  for (int owner = 0; owner < size(); ++owner) {
    if (host_of(owner) != host_of(m) && Deputy(owner, host_of(m)) == m) charges.push_back(owner);
  }
  return charges;
}

std::vector<int> GroupLayout::DeputiesFor(int m) const {
  std::vector<int> deputies;
  for (int host = 0; host < static_cast<int>(members_.size()); ++host) {
    if (host != host_of(m)) deputies.push_back(Deputy(m, host));
  }
  return deputies;
}

int GroupLayout::busiest() const {
  size_t most = 0;
  for (int m = 0; m < size(); ++m) most = std::max(most, ChargesOf(m).size() + DeputiesFor(m).size());
  return static_cast<int>(most);
}

}  // namespace temper
