#include "run/run_record.h"
#include "graph/named_ops.h"

#include <gtest/gtest.h>

namespace temper::run_record_test {
namespace {

// A step whose loss processes `chunk` rows at a time, and computes the head's gradient if that is trained.
CompiledRun RunOf(int64_t chunk, bool trains_head) {
  CompiledRun run;
  Segment segment;
  segment.instructions.push_back(
      {.op = Op::kLinearCrossEntropy,
       .attributes = {{"grad_x", int64_t{1}}, {"grad_w", int64_t{trains_head}}, {"chunk", chunk}}});
  Program train;
  train.segments.push_back(std::move(segment));
  run.programs = ProgramSet({std::move(train)});
  run.hashes_without_limits = {{"train", 7}};
  return run;
}

std::string Differences(const CompiledRun& saved, const CompiledRun& now, DeviceChoice device) {
  const auto ranks = Ranks::Join();
  TEMPER_CHECK(ranks.ok()) << ranks.status().message();
  const auto before = IdentityOf(saved, "kernels", device, *ranks), after = IdentityOf(now, "kernels", device, *ranks);
  TEMPER_CHECK(before.ok() && after.ok());
  return DescribeDifferences(*before, *after);
}

TEST(RunRecord, ContainsTheLossChunksThatRoundTheHeadsGradientOnAGpu) {
  const CompiledRun whole = RunOf(512, true), cut = RunOf(128, true);
  EXPECT_EQ(Differences(whole, cut, DeviceChoice::kGpu), "loss_chunk 512 -> 128");
  EXPECT_EQ(Differences(whole, cut, DeviceChoice::kCpu), "") << "on the CPU chunks change no bit";
  EXPECT_EQ(Differences(RunOf(512, false), RunOf(128, false), DeviceChoice::kGpu), "") << "no sum over rows";
}

TEST(RunRecord, HasTheHashOfEachProgram) {
  CompiledRun saved = RunOf(512, true), now = saved;
  saved.hashes_without_limits = {{"train", 7}, {"eval", 8}, {"reference", 9}};
  now.hashes_without_limits = {{"train", 7}, {"eval", 8}, {"reference", 10}};
  EXPECT_EQ(Differences(saved, now, DeviceChoice::kCpu), "program reference 0000000000000009 -> 000000000000000a");
}

}  // namespace
}  // namespace temper::run_record_test
