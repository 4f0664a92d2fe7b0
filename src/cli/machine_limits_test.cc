#include "cli/machine_limits.h"

#include <gtest/gtest.h>

namespace temper {
namespace {

constexpr Bytes kFree = GiB(10);

// A Program of one segment, which takes `arena` of the device and `host` of the host.
Program ProgramOf(std::vector<Instruction> instructions, Bytes arena, Bytes host = {}) {
  Program program{.name = "train", .arena_bytes = arena};
  Segment segment{.name = "forward"};
  segment.operands = {TensorType{DType::kF32, {4, 256, 1024}}, TensorType{DType::kF32, {4, 512, 1024}},
                      TensorType{DType::kF32, {8, 512, 1024}}};
  segment.instructions = std::move(instructions);
  program.segments.push_back(std::move(segment));
  program.host.bytes = host;
  return program;
}
Instruction Gather(int part, int whole, int64_t dim, const char* axes, bool background) {
  Instruction gather{.op = Op::kAllGather, .inputs = {part}, .outputs = {whole}};
  gather.attributes.Set("axes", axes);
  gather.attributes.Set("ranks", int64_t{2});
  gather.attributes.Set("dim", dim);
  if (background) gather.attributes.Set("background", int64_t{1});
  return gather;
}

TEST(MachineLimits, CommunicatorsAndTheirScratchAreNotTheArenas) {
  const Device::Memory gpu{.total = GiB(12), .free = kFree};
  const Bytes alone = RoomOnGpu(ProgramOf({}, MiB(1)), gpu);
  EXPECT_LT(alone, kFree);
  const auto taken = [&](std::vector<Instruction> instructions) {
    return alone - RoomOnGpu(ProgramOf(std::move(instructions), MiB(1)), gpu);
  };
  // Parts of the first dim lie in one piece: no scratch.
  const Bytes one = taken({Gather(1, 2, 0, "fsdp", true)});
  EXPECT_GT(one, Bytes{0});
  EXPECT_EQ(taken({Gather(1, 2, 0, "fsdp", true), Gather(1, 2, 0, "fsdp", true)}), one) << "the same one";
  EXPECT_EQ(taken({Gather(1, 2, 0, "fsdp", true), Gather(1, 2, 0, "fsdp", false)}), one * 2) << "another stream";
  EXPECT_EQ(taken({Gather(1, 2, 0, "fsdp", true), Gather(1, 2, 0, "tp", true)}), one * 2) << "another group";
  // Of another dim they do not; the largest of a stream serves all.
  EXPECT_EQ(taken({Gather(0, 1, 1, "fsdp", true), Gather(0, 1, 1, "fsdp", true)}), one + MiB(8));
}

TEST(MachineLimits, OfAGpuAreWhatIsFreeThereAndTheHostsMemoryBehindIt) {
  const ProcessMemory available{.host = {GiB(16)}, .gpu = Device::Memory{.total = GiB(12), .free = kFree}};
  const Bytes room = RoomOnGpu(ProgramOf({}, {}), *available.gpu);
  EXPECT_FALSE(LimitsOfMachine(ProgramOf({}, room), {}, available)) << "it fits";
  const Program large = ProgramOf({}, room + Bytes{64});
  const auto limits = LimitsOfMachine(large, {}, available);
  ASSERT_TRUE(limits);
  EXPECT_EQ(limits->device, room);
  EXPECT_GT(limits->host, GiB(8));
  EXPECT_LT(limits->host, GiB(13)) << "pinned memory leaves some for files";
  EXPECT_FALSE(LimitsOfMachine(large, {.placement = MemoryPlacement::kDevice}, available)) << "it was asked for";
  EXPECT_FALSE(LimitsOfMachine(large, {.device = GiB(1), .host = GiB(1)}, available)) << "both were";
  const auto with_host = LimitsOfMachine(large, {.host = GiB(1)}, available);
  ASSERT_TRUE(with_host);
  EXPECT_EQ(with_host->host, GiB(1));
  const std::string why = DescribeLimits(large, available);
  EXPECT_NE(why.find("everything on the GPU takes"), std::string::npos) << why;
  EXPECT_NE(why.find("of 10.00 GiB free there (12.00 GiB in all)"), std::string::npos) << why;
}

TEST(MachineLimits, OfAPipelineEachNeighbourTakesTwoCommunicators) {
  const Device::Memory gpu{.total = GiB(12), .free = kFree};
  const Bytes alone = RoomOnGpu(ProgramOf({}, {}), gpu);
  const Bytes one = alone - RoomOnGpu(ProgramOf({Gather(1, 2, 0, "fsdp", true)}, {}), gpu);
  Instruction send{.op = Op::kSend, .inputs = {0}};
  send.attributes.Set("axes", "pp");
  send.attributes.Set("peer", int64_t{1});
  const Program first_stage = ProgramOf({send}, {});
  EXPECT_EQ(alone - RoomOnGpu(first_stage, gpu, 2), one * 2) << "one neighbour, both ways";
  EXPECT_EQ(alone - RoomOnGpu(first_stage, gpu, 3), one * 4) << "of a ring the last stage is a neighbour, too";
  EXPECT_EQ(alone - RoomOnGpu(first_stage, gpu, 8), one * 4);
}

TEST(MachineLimits, NameTheTierThatLacksRoom) {
  const ProcessMemory available{.host = {GiB(16)}, .gpu = Device::Memory{.total = GiB(12), .free = kFree}};
  // More than may be pinned, less than there is.
  const Program at_host = ProgramOf({}, MiB(1), GiB(14));
  ASSERT_TRUE(LimitsOfMachine(at_host, {}, available));
  const std::string why = DescribeLimits(at_host, available);
  EXPECT_NE(why.find("everything at the host takes 14.00 GiB"), std::string::npos) << why;
  EXPECT_EQ(why.find("GPU"), std::string::npos) << why;
}

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
