#include "program/program.h"

#include <gtest/gtest.h>

#include <functional>

#include "graph/mutated_text_for_test.h"
#include "graph/named_ops.h"

namespace temper::program_test {
namespace {

// Two blocks of y = relu(x w^T) that share a segment: the least that has buffers, temporaries and scratch.
Program Example() {
  const TensorType x{DType::kF32, {4, 8}}, w{DType::kF32, {8, 8}};
  Program p{.name = "train", .threads = 2};
  p.arena_bytes = {1 << 20};
  p.buffers = {{"x", x, Role::kInput, false, {0}},
               {"w.0", w, Role::kWeight, true, {128}},
               {"w.1", w, Role::kWeight, true, {384}},
               {"y", x, Role::kOutput, false, {640}}};
  Segment s{.name = "forward block 0", .phase = Phase::kForward};
  s.operands = {x, w, x};
  s.instructions = {{Op::kLinear, {0, 1}, {2}, {{"acc", int64_t{0}}, {"scale", 0.5}}}, {Op::kRelu, {2}, {2}, {}}};
  p.segments = {s};
  p.bindings = {{0, 0, {{0}, {128}, {1024}}, {0, 0}, {{4096}, {}}},
                {0, 1, {{1024}, {384}, {640}}, {0, 77}, {{4096}, {}}}};
  p.schedule = {{.kind = Call::Kind::kLoadInputs, .micro_batch = 1},
                {.binding = 0, .micro_batch = 1},
                {.binding = 1, .micro_batch = 1},
                {.kind = Call::Kind::kStoreOutputs, .micro_batch = 1},
                {.kind = Call::Kind::kBeforeUpdate}};
  p.peak.weights = {512};
  p.peak_instruction = "forward block 0: linear";
  return p;
}

TEST(Program, PrintsAndReadsBackToTheSameText) {
  const Program p = Example();
  ASSERT_TRUE(Verify(p).ok()) << Verify(p).message();
  const std::string text = PrintProgram(p);
  const auto back = ReadProgram(text);
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(PrintProgram(*back), text);
  EXPECT_EQ(ProgramHash(*back), ProgramHash(p));
  EXPECT_EQ(back->name, p.name);
  EXPECT_EQ(back->threads, p.threads);
  EXPECT_EQ(back->arena_bytes, p.arena_bytes);
  EXPECT_EQ(back->peak.total(), p.peak.total());
  EXPECT_EQ(back->peak_instruction, p.peak_instruction);
  ASSERT_EQ(back->buffers.size(), p.buffers.size());
  EXPECT_TRUE(back->buffers[1].trainable);
  EXPECT_EQ(back->buffers[3].role, Role::kOutput);
  ASSERT_EQ(back->bindings.size(), 2u);
  EXPECT_EQ(back->bindings[1].offsets, p.bindings[1].offsets);
  EXPECT_EQ(back->bindings[1].rng_hashes, p.bindings[1].rng_hashes);
  EXPECT_EQ(back->bindings[1].scratch, p.bindings[1].scratch);
  EXPECT_EQ(back->bindings[1].block, 1);
  ASSERT_EQ(back->schedule.size(), p.schedule.size());
  for (size_t i = 0; i < p.schedule.size(); ++i) {
    EXPECT_EQ(back->schedule[i].kind, p.schedule[i].kind);
    EXPECT_EQ(back->schedule[i].binding, p.schedule[i].binding);
    EXPECT_EQ(back->schedule[i].micro_batch, p.schedule[i].micro_batch);
  }
}

TEST(Program, TheHashSeesEveryChange) {
  const uint64_t hash = ProgramHash(Example());
  const auto differs = [&](const std::function<void(Program&)>& change) {
    Program p = Example();
    change(p);
    EXPECT_NE(ProgramHash(p), hash);
  };
  differs([](Program& p) { p.threads = 3; });
  differs([](Program& p) { p.segments[0].instructions[0].attributes.Set("scale", 0.25); });
  differs([](Program& p) { p.bindings[0].offsets[2] = {2048}; });
  differs([](Program& p) { p.bindings[1].rng_hashes[1] = 78; });
  differs([](Program& p) { p.bindings[1].scratch[0] = {8192}; });
  differs([](Program& p) { p.schedule[1].micro_batch = 0; });
  differs([](Program& p) { p.buffers[1].trainable = false; });
  differs([](Program& p) { p.buffers[3].transient = true; });
}

TEST(Program, CostsAreSummedOverTheSchedule) {
  const Program p = Example();
  const Cost step = CostOfStep(p);
  EXPECT_EQ(step.flops.v, 2 * (2.0 * 4 * 8 * 8 + 4 * 8)) << "two runs of the segment: a product and a relu each";
  EXPECT_EQ(p.FindBuffer("w.1"), 2);
  EXPECT_EQ(p.FindBuffer("w"), -1);
}

void ExpectRefused(const std::string& why, const std::function<void(Program&)>& spoil) {
  Program p = Example();
  spoil(p);
  const Status status = Verify(p);
  ASSERT_FALSE(status.ok()) << why;
  EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
  if (why.find("quote") == std::string::npos) {
    EXPECT_FALSE(ReadProgram(PrintProgram(p)).ok()) << why;
  }
}

TEST(VerifyProgram, RefusesAddressesOutsideOfTheArena) {
  ExpectRefused("buffer y leaves", [](Program& p) { p.buffers[3].offset = {(1 << 20) - 64}; });
  ExpectRefused("buffer x leaves", [](Program& p) { p.buffers[0].offset = {-64}; });
  ExpectRefused("operand 2 leaves", [](Program& p) { p.bindings[0].offsets[2] = {1 << 20}; });
  ExpectRefused("operand 0 leaves", [](Program& p) { p.bindings[1].offsets[0] = {INT64_MAX / 64 * 64}; });
  ExpectRefused("scratch leave", [](Program& p) { p.bindings[0].scratch[0] = {1 << 20}; });
  ExpectRefused("scratch leave", [](Program& p) { p.bindings[0].scratch[0] = {(1 << 20) - 64}; });
  ExpectRefused("scratch leave", [](Program& p) { p.bindings[0].scratch[0] = {-64}; });
  ExpectRefused("scratch leave", [](Program& p) { p.threads = kMaxThreads; });
  ExpectRefused("absurd arena", [](Program& p) { p.arena_bytes = {INT64_MAX}; });
  ExpectRefused("absurd arena", [](Program& p) { p.arena_bytes = {-1}; });
}

TEST(VerifyProgram, RefusesMisalignedAddresses) {
  ExpectRefused("misaligned", [](Program& p) { p.buffers[3].offset = {648}; });
  ExpectRefused("misaligned", [](Program& p) { p.bindings[0].offsets[2] = {1032}; });
  ExpectRefused("misaligned", [](Program& p) { p.bindings[0].scratch[0] = {4100}; });
}

TEST(VerifyProgram, RefusesBuffersThatOverlap) {
  ExpectRefused("overlaps buffer", [](Program& p) { p.buffers[1].offset = {64}; });
  ExpectRefused("overlaps buffer", [](Program& p) { p.buffers[2].offset = {128}; });
}

// What lies among temporaries is theirs before it is there.
TEST(VerifyProgram, LetsOperandsLieOverTransientBuffersButThoseNotOverOthers) {
  Program p = Example();
  p.buffers.push_back({"grad:w.0", {DType::kF32, {16, 8}}, Role::kGradient, false, {1024 + 64}});
  EXPECT_FALSE(Verify(p).ok());
  p.buffers.back().transient = true;
  EXPECT_TRUE(Verify(p).ok()) << Verify(p).message();
  const auto back = ReadProgram(PrintProgram(p));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_TRUE(back->buffers.back().transient);
  p.buffers.back().offset = {640};
  EXPECT_FALSE(Verify(p).ok());
}

TEST(VerifyProgram, RefusesTransientBuffersThatOverlap) {
  const auto add = [](int64_t second) {
    return [second](Program& p) {
      p.buffers.push_back({"grad:w.0", {DType::kF32, {16, 8}}, Role::kGradient, false, {2048}});
      p.buffers.push_back({"grad:w.1", {DType::kF32, {16, 8}}, Role::kGradient, false, {second}});
      for (size_t i = p.buffers.size() - 2; i < p.buffers.size(); ++i) p.buffers[i].transient = true;
    };
  };
  ExpectRefused("buffer grad:w.1 overlaps buffer grad:w.0", add(2048 + 512 - 64));
  ExpectRefused("buffer grad:w.0 overlaps buffer grad:w.1", add(2048 - 64));
  Program apart = Example();
  add(2048 + 512)(apart);
  EXPECT_TRUE(Verify(apart).ok()) << Verify(apart).message();
}

TEST(VerifyProgram, RefusesOperandsThatCutIntoBuffers) {
  ExpectRefused("overlaps buffer w.1", [](Program& p) { p.bindings[0].offsets[2] = {448}; });
  ExpectRefused("overlaps buffer w.0", [](Program& p) { p.bindings[0].offsets[2] = {128}; });
}

TEST(VerifyProgram, RefusesOutputsOverOperandsThatAreStillRead) {
  ExpectRefused("overlap", [](Program& p) { p.bindings[0].offsets = {{1024}, {128}, {1024}}; });
  ExpectRefused("overlap", [](Program& p) { p.bindings[0].offsets = {{1024}, {128}, {1088}}; });
  ExpectRefused("overlap", [](Program& p) { p.segments[0].instructions[0].inputs[0] = 2; });
}

TEST(VerifyProgram, RefusesScratchInThePlaceOfSomethingElse) {
  ExpectRefused("scratch overlap buffer y", [](Program& p) { p.bindings[0].scratch[0] = {704}; });
  ExpectRefused("scratch overlap operand 2", [](Program& p) { p.bindings[0].scratch[0] = {1088}; });
  ExpectRefused("scratch overlap operand 2", [](Program& p) { p.bindings[0].offsets[2] = {8192}; });
  ExpectRefused("another tier", [](Program& p) {
    p.host.bytes = p.arena_bytes;
    p.bindings[0].scratch[0] = BaseOf(Tier::kHost);
  });
  ExpectRefused("scratch have an address", [](Program& p) { p.bindings[0].scratch[1] = {4096}; });
}

TEST(VerifyProgram, RefusesWhatDoesNotExistOrFit) {
  ExpectRefused("threads", [](Program& p) { p.threads = 0; });
  ExpectRefused("threads", [](Program& p) { p.threads = 1 << 30; });
  ExpectRefused("segment 1 does not exist", [](Program& p) { p.bindings[0].segment = 1; });
  ExpectRefused("segment -1 does not exist", [](Program& p) { p.bindings[0].segment = -1; });
  ExpectRefused("does not fit segment", [](Program& p) { p.bindings[0].offsets.pop_back(); });
  ExpectRefused("does not fit segment", [](Program& p) { p.bindings[0].rng_hashes.push_back(0); });
  ExpectRefused("does not fit segment", [](Program& p) { p.bindings[0].scratch.clear(); });
  ExpectRefused("binding 2", [](Program& p) { p.schedule[1].binding = 2; });
  ExpectRefused("binding -1", [](Program& p) { p.schedule[1].binding = -1; });
  ExpectRefused("negative micro-batch", [](Program& p) { p.schedule[0].micro_batch = -1; });
  ExpectRefused("operand 3 of 3", [](Program& p) { p.segments[0].instructions[0].inputs[0] = 3; });
  ExpectRefused("operand -1 of 3", [](Program& p) { p.segments[0].instructions[0].outputs[0] = -1; });
  ExpectRefused("outputs of other types", [](Program& p) { p.segments[0].instructions[1].outputs[0] = 1; });
  ExpectRefused("[linear] expects", [](Program& p) { p.segments[0].instructions[0].inputs = {0}; });
  ExpectRefused("no attribute", [](Program& p) { p.segments[0].instructions[1].attributes.Set("x", int64_t{1}); });
  ExpectRefused("quote", [](Program& p) { p.buffers[0].name = "a\"b"; });
  ExpectRefused("quote", [](Program& p) { p.name = "a\nb"; });
}

TEST(ReadProgram, RefusesTextWithoutAHead) {
  const std::string text = PrintProgram(Example());
  EXPECT_FALSE(ReadProgram("").ok());
  EXPECT_FALSE(ReadProgram(text.substr(text.find('\n') + 1)).ok());
  EXPECT_FALSE(ReadProgram(text + text).ok()) << "two Programs";
  const auto read = ReadProgram(text + "nonsense\n");
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.status().message().find("'nonsense'"), std::string::npos) << read.status().message();
}

TEST(ReadProgram, EveryTruncationIsRefusedOrVerifies) {
  const std::string text = PrintProgram(Example());
  for (size_t n = 0; n < text.size(); ++n) {
    const auto read = ReadProgram(text.substr(0, n));
    if (read.ok()) {
      EXPECT_TRUE(Verify(*read).ok());
    }
  }
}

TEST(ReadProgram, MutationsNeverCrashAndWhatIsAcceptedReadsBack) {
  MutatedText mutated(PrintProgram(Example()), 5);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto read = ReadProgram(mutated.Next());
    if (!read.ok()) continue;
    ++accepted;
    const std::string printed = PrintProgram(*read);
    const auto again = ReadProgram(printed);
    ASSERT_TRUE(again.ok()) << again.status().message() << "\n" << printed;
    EXPECT_EQ(PrintProgram(*again), printed);
    (void)CostOfStep(*read);
  }
  EXPECT_GT(accepted, 100) << "the mutations hit only what is refused anyway";
}

}  // namespace
}  // namespace temper::program_test
