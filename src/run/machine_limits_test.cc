#include "run/machine_limits.h"
#include "graph/named_ops.h"

#include <gtest/gtest.h>

namespace temper::machine_limits_test {
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

TEST(MachineLimits, TheArenaExcludesCommunicatorsAndTheirScratch) {
  const Bytes gpu = kFree;
  const Bytes alone = RoomOnGpu(ProgramOf({}, MiB(1)), gpu);
  EXPECT_LT(alone, kFree);
  const auto taken = [&](std::vector<Instruction> instructions) {
    return alone - RoomOnGpu(ProgramOf(std::move(instructions), MiB(1)), gpu);
  };
  // Parts of the first dim are contiguous: no scratch.
  const Bytes one = taken({Gather(1, 2, 0, "fsdp", true)});
  EXPECT_GT(one, Bytes{0});
  EXPECT_EQ(taken({Gather(1, 2, 0, "fsdp", true), Gather(1, 2, 0, "fsdp", true)}), one) << "the same one";
  EXPECT_EQ(taken({Gather(1, 2, 0, "fsdp", true), Gather(1, 2, 0, "fsdp", false)}), one * 2) << "another stream";
  EXPECT_EQ(taken({Gather(1, 2, 0, "fsdp", true), Gather(1, 2, 0, "tp", true)}), one * 2) << "another group";
  // Parts of another dim are not; the largest scratch of a stream serves all.
  EXPECT_EQ(taken({Gather(0, 1, 1, "fsdp", true), Gather(0, 1, 1, "fsdp", true)}), one + MiB(8));
}

TEST(MachineLimits, EachPipelineNeighbourTakesTwoCommunicators) {
  const Bytes gpu = kFree;
  const Bytes alone = RoomOnGpu(ProgramOf({}, {}), gpu);
  const Bytes one = alone - RoomOnGpu(ProgramOf({Gather(1, 2, 0, "fsdp", true)}, {}), gpu);
  Instruction send{.op = Op::kSend, .inputs = {0}};
  send.attributes.Set("axes", "pp");
  send.attributes.Set("peer", int64_t{1});
  const Program first_stage = ProgramOf({send}, {});
  EXPECT_EQ(alone - RoomOnGpu(first_stage, gpu, 2), one * 2) << "one neighbour, both ways";
  EXPECT_EQ(alone - RoomOnGpu(first_stage, gpu, 3), one * 4) << "in a ring the last stage is a neighbour, too";
  EXPECT_EQ(alone - RoomOnGpu(first_stage, gpu, 8), one * 4);
}

}  // namespace
}  // namespace temper::machine_limits_test
