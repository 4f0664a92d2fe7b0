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
  const RunMemory available{.host = {GiB(16)}, .gpu = Device::Memory{.total = GiB(12), .free = kFree}};
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

}  // namespace
}  // namespace temper
