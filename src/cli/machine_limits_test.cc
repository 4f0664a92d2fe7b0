#include "cli/machine_limits.h"

#include <gtest/gtest.h>

namespace temper {
namespace {

RankMemory Memory(Bytes each, int ranks_per_machine) {
  return {.each = {each}, .ranks_per_machine = ranks_per_machine};
}
// Enough for arenas of so much.
bool Suffices(Bytes share, Bytes arenas) {
  return RoomForArenas(share) >= arenas;
}

TEST(SharesOfStages, WhatOneStageLeavesIsTheOthers) {
  // Alike, each would have 2 GiB: the second could not run in memory though both together fit.
  const auto shares = SharesOfStages(Memory(GiB(2), 2), {GiB(1), MiB(2400)}, 2);
  EXPECT_TRUE(Suffices(shares[0], GiB(1)));
  EXPECT_TRUE(Suffices(shares[1], MiB(2400)));
  EXPECT_FALSE(Suffices(SharesOfStages(Memory(GiB(2), 2), {GiB(1), MiB(2800)}, 2)[1], MiB(2800)));
}

TEST(SharesOfStages, TogetherTakeNoMoreThanThereIs) {
  for (const int64_t large : {1, 2, 3, 5, 8}) {
    for (const int ranks : {3, 6}) {
      const std::vector<Bytes> needs = {GiB(large), GiB(1), GiB(2)};
      const auto shares = SharesOfStages(Memory(GiB(2), ranks), needs, ranks);
      Bytes taken{};
      for (size_t stage = 0; stage < needs.size(); ++stage) {
        const Bytes room = RoomForArenas(shares[stage]);
        EXPECT_GE(shares[stage], GiB(2)) << "nobody has less than where all take alike";
        taken += (std::min(room, needs[stage]) + MiB(150)) * (ranks / 3);
      }
      EXPECT_LE(taken, GiB(2) * ranks);
    }
  }
}

TEST(SharesOfStages, AreTheSameOnAllMachinesOfAStage) {
  // Stages of two ranks on machines of three: the second stage has a rank beside two of the first, and one beside two
  // of the third.
  const auto shares = SharesOfStages(Memory(GiB(2), 3), {GiB(1), GiB(4), GiB(3)}, 6);
  EXPECT_EQ(shares[1], GiB(2)) << "on the second machine nobody leaves anything";
  EXPECT_EQ(shares[0], GiB(2));
}

TEST(SharesOfStages, AreAlikeWhereItIsNotKnownWhoSharesAMachine) {
  EXPECT_EQ(SharesOfStages(Memory(GiB(2), 0), {GiB(1), GiB(4)}, 2), (std::vector<Bytes>{GiB(2), GiB(2)}));
}

TEST(SharesOfStages, OfOneStageAreWhatEachRankHas) {
  for (const Bytes need : {GiB(1), GiB(9)}) {
    EXPECT_EQ(SharesOfStages(Memory(GiB(2), 4), {need}, 4), std::vector<Bytes>{GiB(2)});
  }
}

}  // namespace
}  // namespace temper
