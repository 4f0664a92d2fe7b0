#include "compile/memory/machine_room.h"

#include <gtest/gtest.h>

namespace temper::machine_room_test {
namespace {

constexpr Bytes kFree = GiB(10), kLibraries = MiB(512);

// A GPU that has 10 of 12 GiB free, of which libraries take a part.
GpuRoom Gpu() {
  return {
      .total = GiB(12), .free = kFree, .for_arena = [](const Program&, Bytes free, int) { return free - kLibraries; }};
}

// A Program that takes `arena` of the device and `host` of the host.
Program ProgramOf(Bytes arena, Bytes host = {}) {
  Program program{.name = "train", .arena_bytes = arena};
  program.host.bytes = host;
  return program;
}

TEST(MachineRoom, GpuLimitsAreItsFreeMemoryAndTheHosts) {
  const ProcessMemory available{.host = {GiB(16)}, .gpu = Gpu()};
  const Bytes room = kFree - kLibraries;
  EXPECT_FALSE(LimitsOfMachine(ProgramOf(room), {}, available)) << "it fits";
  const Program large = ProgramOf(room + Bytes{64});
  const auto limits = LimitsOfMachine(large, {}, available);
  ASSERT_TRUE(limits);
  EXPECT_EQ(limits->device, room);
  EXPECT_GT(limits->host, GiB(8));
  EXPECT_LT(limits->host, GiB(13)) << "pinned memory leaves some for files";
  EXPECT_FALSE(LimitsOfMachine(large, {.policy = TierPolicy::kDevice}, available)) << "it was requested";
  EXPECT_FALSE(LimitsOfMachine(large, {.device = GiB(1), .host = GiB(1)}, available)) << "both were requested";
  const auto with_host = LimitsOfMachine(large, {.host = GiB(1)}, available);
  ASSERT_TRUE(with_host);
  EXPECT_EQ(with_host->host, GiB(1));
  const std::string why = DescribeLimits(large, available);
  EXPECT_NE(why.find("everything on the GPU takes"), std::string::npos) << why;
  EXPECT_NE(why.find("of 10.00 GiB free there (12.00 GiB in all)"), std::string::npos) << why;
}

TEST(MachineRoom, MessagesNameTheTierThatLacksMemory) {
  const ProcessMemory available{.host = {GiB(16)}, .gpu = Gpu()};
  // More than may be pinned, less than the host has.
  const Program at_host = ProgramOf(MiB(1), GiB(14));
  ASSERT_TRUE(LimitsOfMachine(at_host, {}, available));
  const std::string why = DescribeLimits(at_host, available);
  EXPECT_NE(why.find("everything at the host takes 14.00 GiB"), std::string::npos) << why;
  EXPECT_EQ(why.find("GPU"), std::string::npos) << why;
}

// Where options leave nothing to choose, what does not fit beside the process itself is refused, and only that.
TEST(MachineRoom, RefusesWhatOptionsPlaceWhereItDoesNotFit) {
  const ProcessMemory available{.host = {GiB(2)}};
  const Bytes room = RoomForArenas(GiB(2));
  const Program fits = ProgramOf(room), large = ProgramOf(room, Bytes{64});
  const MemorySpec device{.policy = TierPolicy::kDevice}, both{.device = GiB(4), .host = GiB(1)};
  for (const MemorySpec& asked : {device, both}) {
    EXPECT_TRUE(CheckRoom(fits, asked, available).ok());
    EXPECT_EQ(CheckRoom(large, asked, available).code(), StatusCode::kOutOfMemory);
    EXPECT_TRUE(CheckRoom(large, asked, {.host = {GiB(2)}, .gpu = Gpu()}).ok()) << "the allocation decides";
  }
  EXPECT_TRUE(CheckRoom(large, {}, available).ok()) << "it gets limits";
  EXPECT_NE(CheckRoom(large, both, available).message().find("because memory.device and memory.host are both set"),
            std::string::npos);
}

// For an f32 weight whose optimizer has few states, the copies are mostly the gradient and the weight.
TEST(MachineRoom, HostLimitCoversTheCopiesOfALargeUpdate) {
  const TensorType f32{DType::kF32, {1 << 20}};
  const auto host_of = [&](const std::vector<std::string>& states) {
    Program program = ProgramOf(GiB(2));
    program.buffers.push_back({.name = "W", .type = f32, .role = Role::kWeight, .trainable = true});
    for (const std::string& state : states) {
      program.buffers.push_back({.name = state, .type = f32, .role = Role::kOptimizerState});
    }
    const auto limits = LimitsOfMachine(program, {}, {.host = {MiB(220)}});
    return limits ? limits->host : Bytes{};
  };
  EXPECT_EQ(host_of({"adam_m:W", "adam_v:W"}), MiB(18)) << "2.25 times the states";
  EXPECT_EQ(host_of({"sgd_momentum:W"}), Bytes{MiB(27).v / 2}) << "1.125 times weight, gradient and momentum";
  EXPECT_GE(host_of({}), MiB(9)) << "weight and gradient";
}

RankMemory Memory(Bytes each, int ranks_per_machine) {
  return {.each = {each}, .ranks_per_machine = ranks_per_machine};
}
// Whether `share` is enough for `arenas`.
bool Suffices(Bytes share, Bytes arenas) {
  return RoomForArenas(share) >= arenas;
}

TEST(SharesOfStages, SpareMemoryOfAStageGoesToTheOthers) {
  // With equal shares of 2 GiB, the second stage would not fit in memory, although both together do.
  const auto shares = SharesOfStages(Memory(GiB(2), 2), {GiB(1), MiB(2400)}, 2);
  EXPECT_TRUE(Suffices(shares[0], GiB(1)));
  EXPECT_TRUE(Suffices(shares[1], MiB(2400)));
  EXPECT_FALSE(Suffices(SharesOfStages(Memory(GiB(2), 2), {GiB(1), MiB(2800)}, 2)[1], MiB(2800)));
}

TEST(SharesOfStages, TheSumNeverExceedsTheMachine) {
  for (const int64_t large : {1, 2, 3, 5, 8}) {
    for (const int ranks : {3, 6}) {
      const std::vector<Bytes> needs = {GiB(large), GiB(1), GiB(2)};
      const auto shares = SharesOfStages(Memory(GiB(2), ranks), needs, ranks);
      Bytes taken{};
      for (size_t stage = 0; stage < needs.size(); ++stage) {
        const Bytes room = RoomForArenas(shares[stage]);
        EXPECT_GE(shares[stage], GiB(2)) << "no stage has less than an equal share";
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
  EXPECT_EQ(shares[1], GiB(2)) << "on the second machine no stage has memory to spare";
  EXPECT_EQ(shares[0], GiB(2));
}

TEST(SharesOfStages, AreEqualIfMachinesAreUnknown) {
  EXPECT_EQ(SharesOfStages(Memory(GiB(2), 0), {GiB(1), GiB(4)}, 2), (std::vector<Bytes>{GiB(2), GiB(2)}));
}

TEST(SharesOfStages, WithoutAPipelineAreThoseOfEachRank) {
  for (const Bytes need : {GiB(1), GiB(9)}) {
    EXPECT_EQ(SharesOfStages(Memory(GiB(2), 4), {need}, 4), std::vector<Bytes>{GiB(2)});
  }
}

}  // namespace
}  // namespace temper::machine_room_test
