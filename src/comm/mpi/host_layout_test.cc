#include "comm/mpi/host_layout.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

namespace temper::host_layout_test {
namespace {

TEST(HostLayout, RanksOfAHostNeedNotFollowEachOther) {
  const HostLayout layout = HostLayout::FromLeaders({0, 1, 0, 1, 1});
  EXPECT_EQ(layout.ranks, (std::vector<std::vector<int>>{{0, 2}, {1, 3, 4}}));
  EXPECT_EQ(layout.place(2), 1);
  EXPECT_EQ(layout.place(4), 2);
}

TEST(GroupLayout, HostsComeInTheOrderOfTheirFirstMembers) {
  const HostLayout hosts = HostLayout::FromLeaders({0, 0, 2, 2});
  const GroupLayout group(hosts, {3, 0, 2, 1}, 2);
  EXPECT_EQ(group.index(), 2);
  EXPECT_EQ(group.hosts(), (std::vector<std::vector<int>>{{0, 2}, {1, 3}}));
  EXPECT_EQ(group.own_host(), 0);
  EXPECT_EQ(group.place(2), 1);
  EXPECT_FALSE(group.one_host());
}

// What leaves one side arrives at the other: a's deputies have a among their charges, once per other host.
TEST(GroupLayout, DeputiesAndChargesAgreeAndShareTheWork) {
  for (const std::vector<int>& leaders :
       {std::vector<int>{0, 1, 2, 3}, {0, 0, 2, 2}, {0, 0, 0, 3, 3}, {0, 0, 0, 0, 4, 4, 6}}) {
    const HostLayout hosts = HostLayout::FromLeaders(leaders);
    std::vector<int> ranks(leaders.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    const GroupLayout group(hosts, ranks, 0);
    std::map<std::pair<int, int>, int> sent, received;
    for (int m = 0; m < group.size(); ++m) {
      for (const int deputy : group.DeputiesFor(m)) ++sent[{m, deputy}];
      for (const int owner : group.ChargesOf(m)) ++received[{owner, m}];
      EXPECT_EQ(group.DeputiesFor(m).size() + 1, group.hosts().size());
      EXPECT_LE(static_cast<int>(group.ChargesOf(m).size() + group.DeputiesFor(m).size()), group.busiest());
    }
    EXPECT_EQ(sent, received);
    for (const auto& [pair, times] : sent) EXPECT_EQ(times, 1);
  }
  // Two hosts of two: nobody has more than one charge.
  const GroupLayout even(HostLayout::FromLeaders({0, 0, 2, 2}), {0, 1, 2, 3}, 0);
  for (int m = 0; m < 4; ++m) EXPECT_EQ(even.ChargesOf(m).size(), 1u);
}

}  // namespace
}  // namespace temper::host_layout_test
