// The executor on kernels that are made for watching it: relu here adds 1 to every element, and every call is recorded.
#include "runtime/executor.h"
#include "graph/named_ops.h"

#include <gtest/gtest.h>

#include <functional>

#include "runtime/arena.h"

namespace temper::executor_test {
namespace {

struct Watch {
  std::vector<std::string> events;  // in order: "make relu", "run", "before_update"
  int fail_at_run = -1;             // index of the run that fails
  int runs = 0;
  std::vector<uint64_t> rng_hashes;
  std::vector<std::byte*> workspaces;
};

class AddOne final : public Kernel {
 public:
  AddOne(Watch* watch, int64_t n) : watch_(*watch), n_(n) {}
  Status Run(const KernelArgs& args) override {
    watch_.events.push_back("run");
    watch_.rng_hashes.push_back(args.rng_name_hash);
    if (watch_.runs++ == watch_.fail_at_run) return Numerical("the kernel says no");
    const auto* in = reinterpret_cast<const float*>(args.inputs[0]);
    auto* out = reinterpret_cast<float*>(args.outputs[0]);
    for (int64_t i = 0; i < n_; ++i) out[i] = in[i] + 1;
    return OkStatus();
  }

 private:
  Watch& watch_;
  const int64_t n_;
};

class NoteScratch final : public Kernel {
 public:
  explicit NoteScratch(Watch* watch) : watch_(*watch) {}
  Status Run(const KernelArgs& args) override {
    watch_.workspaces.push_back(args.workspace);
    return OkStatus();
  }

 private:
  Watch& watch_;
};

class WatchedKernels final : public KernelTable {
 public:
  explicit WatchedKernels(Watch* watch) : watch_(watch) {}
  const std::string& name() const override { return name_; }
  Result<std::unique_ptr<Kernel>> Make(const KernelSpec& spec) override {
    watch_->events.push_back("make " + std::string(ToString(spec.op)));
    if (spec.op == Op::kSumSquares) return std::unique_ptr<Kernel>(std::make_unique<NoteScratch>(watch_));
    if (spec.op != Op::kRelu) return Unsupported("only relu");
    return std::unique_ptr<Kernel>(std::make_unique<AddOne>(watch_, spec.inputs[0].shape.elements()));
  }

 private:
  Watch* const watch_;
  const std::string name_ = "watched";
};

const TensorType kX{DType::kF32, {4}};

// x -> y twice per micro-batch (through a temporary), then w -> w in the update.
Program TwoMicroBatches() {
  Program p{.name = "train"};
  p.arena_bytes = {1024};
  p.buffers = {{"x", kX, Role::kInput, false, {0}},
               {"y", kX, Role::kOutput, false, {64}},
               {"w", kX, Role::kWeight, true, {128}},
               {"constant.3.norm", kX, Role::kConstant, false, {192}}};
  p.segments = {{"forward", Phase::kForward, {kX, kX}, {{Op::kRelu, {0}, {1}, {}}}},
                {"update", Phase::kUpdate, {kX}, {{Op::kRelu, {0}, {0}, {}}}}};
  p.bindings = {{0, 0, {{0}, {256}}, {11}, {{}}}, {0, 1, {{256}, {64}}, {22}, {{}}}, {1, 0, {{128}}, {0}, {{}}}};
  using Kind = Call::Kind;
  for (int m = 0; m < 2; ++m) {
    p.schedule.push_back({.kind = Kind::kLoadInputs, .micro_batch = m});
    p.schedule.push_back({.binding = 0, .micro_batch = m});
    p.schedule.push_back({.binding = 1, .micro_batch = m});
    p.schedule.push_back({.kind = Kind::kStoreOutputs, .micro_batch = m});
  }
  p.schedule.push_back({.kind = Kind::kBeforeUpdate});
  p.schedule.push_back({.binding = 2});
  TEMPER_CHECK(Verify(p).ok()) << Verify(p).message();
  return p;
}

struct Fixture {
  Watch watch;
  WatchedKernels kernels{&watch};
  Program program = TwoMicroBatches();
  std::unique_ptr<Arena> arena = std::move(*Arena::Create(program.arena_bytes));
  std::unique_ptr<Executor> executor;
  std::vector<float> x = {0, 1, 2, 3, 10, 11, 12, 13}, y = std::vector<float>(8, -1);

  Fixture() {
    auto made = Executor::Create(program, *arena, kernels);
    TEMPER_CHECK(made.ok()) << made.status().message();
    executor = std::move(*made);
  }
  std::vector<HostArray> io() {
    return {{0, std::as_writable_bytes(std::span(x))}, {1, std::as_writable_bytes(std::span(y))}};
  }
};

TEST(Executor, EachMicroBatchReadsItsInputsAndWritesItsOutputs) {
  Fixture f;
  ASSERT_TRUE(f.executor->Run(f.io()).ok());
  EXPECT_EQ(f.y, (std::vector<float>{2, 3, 4, 5, 12, 13, 14, 15}));
  EXPECT_EQ(f.executor->BufferView(2).as<float>()[0], 1) << "updated once per step";
  ASSERT_TRUE(f.executor->Run(f.io()).ok());
  EXPECT_EQ(f.executor->BufferView(2).as<float>()[0], 2);
}

// The second executor runs the same on its own: between them lies what they share, the arena.
TEST(Executor, MicroBatchesOneByOneAreARunAlsoInTurns) {
  Fixture f;
  const auto other = std::move(*Executor::Create(f.program, *f.arena, f.kernels));
  f.watch.events.clear();
  const auto before_update = [&] {
    f.watch.events.push_back("before_update");
    return OkStatus();
  };
  ASSERT_TRUE(other->RunMicroBatch(0, f.io(), before_update).ok());
  EXPECT_EQ(f.y, (std::vector<float>{2, 3, 4, 5, -1, -1, -1, -1}));
  EXPECT_EQ(f.watch.events, (std::vector<std::string>{"run", "run"}));
  ASSERT_TRUE(f.executor->RunMicroBatch(1, f.io(), before_update).ok());
  EXPECT_EQ(f.y, (std::vector<float>{2, 3, 4, 5, 12, 13, 14, 15}));
  EXPECT_EQ(f.watch.events, (std::vector<std::string>{"run", "run", "run", "run", "before_update", "run"}));
  EXPECT_EQ(f.executor->BufferView(2).as<float>()[0], 1) << "updated once per step";
}

TEST(ExecutorDeathTest, HostArraysMustHoldAllMicroBatches) {
  Fixture f;
  auto io = f.io();
  io[1].bytes = io[1].bytes.first(io[1].bytes.size() - 1);
  EXPECT_DEATH((void)f.executor->Run(io), "host array for y has 31 bytes; 2 micro-batches");
  io[1].buffer = 4;
  EXPECT_DEATH((void)f.executor->Run(io), "buffer 4 of 4");
}

TEST(Executor, MakesOneKernelPerInstructionOfASegmentAndPassesDraws) {
  Fixture f;
  EXPECT_EQ(f.watch.events, (std::vector<std::string>{"make relu", "make relu"}));
  ASSERT_TRUE(f.executor->Run(f.io()).ok());
  EXPECT_EQ(f.watch.rng_hashes, (std::vector<uint64_t>{11, 22, 11, 22, 0}));
}

TEST(Executor, EachUseOfASegmentHasItsOwnScratch) {
  Program p{.name = "train"};
  p.arena_bytes = {1024};
  p.buffers = {{"w", kX, Role::kWeight, true, {0}}};
  p.segments = {{"update", Phase::kUpdate, {kX, {DType::kF64, {1}}}, {{Op::kSumSquares, {0}, {1}, {}}}}};
  p.bindings = {{0, 0, {{0}, {64}}, {0}, {{512}}}, {0, 1, {{0}, {128}}, {0}, {{256}}}};
  p.schedule = {{.binding = 0}, {.binding = 1}};
  ASSERT_TRUE(Verify(p).ok()) << Verify(p).message();
  Watch watch;
  WatchedKernels kernels(&watch);
  const auto arena = std::move(*Arena::Create(p.arena_bytes));
  const auto executor = std::move(*Executor::Create(p, *arena, kernels));
  ASSERT_TRUE(executor->Run({}).ok());
  EXPECT_EQ(watch.workspaces, (std::vector<std::byte*>{arena->At({512}), arena->At({256})}));
}

TEST(Executor, ConstantsAreSetWhenItIsMade) {
  Fixture f;
  for (const float c : f.executor->BufferView(3).as<float>()) EXPECT_EQ(c, 3);
  for (const char* name : {"constant.x", "constant.", "norm"}) {
    Program bad = TwoMicroBatches();
    bad.buffers[3].name = name;
    const auto made = Executor::Create(bad, *f.arena, f.kernels);
    ASSERT_FALSE(made.ok()) << name;
    EXPECT_NE(made.status().message().find(name), std::string::npos);
  }
  Program integers = TwoMicroBatches();
  integers.buffers[3].type.dtype = DType::kI32;
  EXPECT_FALSE(Executor::Create(integers, *f.arena, f.kernels).ok());
}

TEST(Executor, SaysOnceAndInTimeThatWeightsAreAboutToChange) {
  Fixture f;
  int calls = 0;
  const auto before_update = [&] {
    ++calls;
    f.watch.events.push_back("before_update");
    EXPECT_EQ(f.executor->BufferView(2).as<float>()[0], 0) << "not yet changed";
    EXPECT_EQ(f.y[7], 15) << "all micro-batches are done";
    return OkStatus();
  };
  ASSERT_TRUE(f.executor->Run(f.io(), before_update).ok());
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(f.watch.events.back(), "run");
  EXPECT_EQ(*(f.watch.events.end() - 2), "before_update");
}

TEST(Executor, AnErrorBeforeTheUpdateLeavesTheWeights) {
  Fixture f;
  const Status status = f.executor->Run(f.io(), [] { return IoError("the disk is full"); });
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_EQ(f.executor->BufferView(2).as<float>()[0], 0);
}

TEST(Executor, AKernelsErrorNamesTheInstructionAndSticks) {
  Fixture f;
  f.watch.fail_at_run = 1;
  const Status status = f.executor->Run(f.io());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kNumerical);
  for (const char* part : {"forward", "block 1", "relu", "the kernel says no"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }
  EXPECT_EQ(f.watch.runs, 2) << "nothing runs after it";
  const Status again = f.executor->Run(f.io());
  EXPECT_EQ(again.message(), status.message());
  EXPECT_EQ(f.watch.runs, 2) << "nor later";
}

TEST(Executor, AKernelThatCannotBeMadeIsNamed) {
  Fixture f;
  Program p = TwoMicroBatches();
  p.segments[0].instructions[0].op = Op::kGelu;
  const auto made = Executor::Create(p, *f.arena, f.kernels);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(made.status().message().find("forward: gelu"), std::string::npos) << made.status().message();
}

TEST(Executor, TracesEveryInstruction) {
  Fixture f;
  Trace trace(4);
  f.executor->TraceInto(&trace);
  ASSERT_TRUE(f.executor->Run(f.io()).ok());
  ASSERT_EQ(trace.events().size(), 4u);
  EXPECT_EQ(trace.dropped(), 1);
  EXPECT_EQ(trace.events()[1].block, 1);
  EXPECT_EQ(trace.events()[2].micro_batch, 1);
  EXPECT_EQ(trace.events()[0].bytes.v, 2 * kX.bytes().v);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_LE(trace.events()[i].begin, trace.events()[i].end);
    if (i > 0) {
      EXPECT_LE(trace.events()[i - 1].end, trace.events()[i].begin);
    }
  }
}

}  // namespace
}  // namespace temper::executor_test
