// Transfers and collectives beside kernels: what waits for them and what does not. Here relu copies, a recv writes
// sevens, a send notes what it reads, and a gather, in the background, takes place when there has been a sum.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "graph/named_ops.h"
#include "runtime/arena.h"
#include "runtime/executor.h"

namespace temper::transfers_test {
namespace {

using std::chrono::milliseconds;

const TensorType kX{DType::kF32, {4}};

struct World {
  std::atomic<int> kernels{0};  // that have run
  int recv_after = 0;           // a recv takes place when so many kernels have run
  std::atomic<int> received{0};
  bool send_after_recv = false;  // a send takes place when something has been received
  std::vector<float> sent;
  std::atomic<int> sums{0};
};

// Until `reached`, or for as long as nobody should wait.
Status Await(const std::function<bool()>& reached) {
  for (int i = 0; i < 2000 && !reached(); ++i) std::this_thread::sleep_for(milliseconds(1));
  return reached() ? OkStatus() : IoError("waited in vain");
}

class Watched final : public Kernel {
 public:
  Watched(Op op, World& world) : op_(op), world_(world) {}
  Status Run(const KernelArgs& args) override {
    const auto floats = [](std::byte* p) { return reinterpret_cast<float*>(p); };
    if (op_ == Op::kRecv) {
      TEMPER_RETURN_IF_ERROR(Await([&] { return world_.kernels >= world_.recv_after; }));
      std::fill_n(floats(args.outputs[0]), 4, 7.0f);
      ++world_.received;
    } else if (op_ == Op::kSend) {
      if (world_.send_after_recv) TEMPER_RETURN_IF_ERROR(Await([&] { return world_.received > 0; }));
      std::this_thread::sleep_for(milliseconds(20));
      world_.sent.push_back(*floats(args.inputs[0]));
    } else {
      if (op_ == Op::kAllGather) {
        TEMPER_RETURN_IF_ERROR(Await([&] { return world_.sums > 0; }));
        std::this_thread::sleep_for(milliseconds(20));
      }
      if (op_ == Op::kAllReduce) ++world_.sums;
      std::copy_n(floats(args.inputs[0]), 4, floats(args.outputs[0]));
      ++world_.kernels;
    }
    return OkStatus();
  }

 private:
  const Op op_;
  World& world_;
};

class WatchedTable final : public KernelTable {
 public:
  explicit WatchedTable(World& world) : world_(world) {}
  const std::string& name() const override { return name_; }
  Result<std::unique_ptr<Kernel>> Make(const KernelSpec& spec) override {
    return std::unique_ptr<Kernel>(std::make_unique<Watched>(spec.op, world_));
  }

 private:
  World& world_;
  const std::string name_ = "watched";
};

Instruction Send(int operand) {
  return {Op::kSend,
          {operand},
          {},
          {{"axes", std::string("pp")}, {"peer", int64_t{1}}, {"tag", int64_t{0}}, {"background", int64_t{1}}}};
}
Instruction Receive(int operand) {
  Instruction i = {Op::kRecv, {}, {operand}, Send(0).attributes};
  i.attributes.Set("dtype", std::string("f32"));
  i.attributes.Set("shape", std::vector<double>{4});
  return i;
}
Instruction Gather(int from, int to) {
  return {Op::kAllGather,
          {from},
          {to},
          {{"axes", std::string("fsdp")},
           {"ranks", int64_t{2}},
           {"dim", int64_t{0}},
           {"sizes", std::vector<double>{4}},
           {"background", int64_t{1}}}};
}
Instruction Sum(int from, int to) {
  return {Op::kAllReduce, {from}, {to}, {{"axes", std::string("tp")}, {"ranks", int64_t{2}}}};
}
Instruction Copy(int from, int to) {
  return {Op::kRelu, {from}, {to}, {}};
}

// Four operands of 64 bytes, of which the first and the last are weights, in `micro_batches` that each run all
// instructions.
Program Of(std::vector<Instruction> instructions, int micro_batches) {
  Program p{.name = "train"};
  p.arena_bytes = {256};
  p.buffers = {{"w", kX, Role::kWeight, false, {0}}, {"last", kX, Role::kWeight, false, {192}}};
  p.segments = {{"forward", Phase::kForward, {kX, kX, kX, kX}, std::move(instructions)}};
  const size_t n = p.segments[0].instructions.size();
  p.bindings = {{0, 0, {{0}, {64}, {128}, {192}}, std::vector<uint64_t>(n), std::vector<Bytes>(n)}};
  for (int m = 0; m < micro_batches; ++m) {
    p.schedule.push_back({.kind = Call::Kind::kLoadInputs, .micro_batch = m});
    p.schedule.push_back({.binding = 0, .micro_batch = m});
  }
  TEMPER_CHECK(Verify(p).ok()) << Verify(p).message();
  return p;
}

// The first operand holds ones; returns what the last holds in the end.
Result<float> RunOnce(std::vector<Instruction> instructions, World& world) {
  const Program p = Of(std::move(instructions), 1);
  auto arena = std::move(*Arena::Create(p.arena_bytes));
  WatchedTable table(world);
  auto executor = std::move(*Executor::Create(p, *arena, table, &table));
  std::ranges::fill(executor->BufferView(0).as<float>(), 1.0f);
  const Status status = executor->Run({});
  if (!status.ok()) return status;
  return executor->BufferView(1).as<float>()[0];
}

TEST(Transfers, OnlyWhatReadsAReceivedValueWaitsForIt) {
  // The recv takes place when the first copy has run, which therefore must not wait; the second must.
  World world{.recv_after = 1};
  EXPECT_EQ(*RunOnce({Receive(1), Copy(0, 2), Copy(1, 3)}, world), 7);
}

TEST(Transfers, WhatIsSentIsNotOverwrittenBefore) {
  World world;
  EXPECT_EQ(*RunOnce({Copy(0, 1), Send(1), Copy(0, 2), Receive(2), Copy(2, 1), Copy(1, 3)}, world), 7);
  EXPECT_EQ(world.sent, (std::vector<float>{1}));
}

TEST(Transfers, AReceiveIntoWhatIsBeingSentWaits) {
  World world;
  EXPECT_EQ(*RunOnce({Copy(0, 1), Send(1), Receive(1), Copy(1, 3)}, world), 7);
  EXPECT_EQ(world.sent, (std::vector<float>{1}));
}

TEST(Transfers, ASendDoesNotHoldUpAReceive) {
  World world{.send_after_recv = true};
  EXPECT_EQ(*RunOnce({Send(0), Receive(1), Copy(1, 3)}, world), 7);
  EXPECT_EQ(world.sent, (std::vector<float>{1}));
}

// Of a step on fsdp and tp: weights are gathered for the next block while this one adds up its activations.
TEST(BackgroundCollectives, ASumThatIsNeededAtOnceDoesNotWaitForThem) {
  World world;
  EXPECT_EQ(*RunOnce({Gather(0, 1), Sum(0, 2), Copy(1, 3)}, world), 1);
  EXPECT_EQ(world.sums, 1);
}

TEST(BackgroundCollectives, ASumOfWhatTheyGiveWaitsForThem) {
  World world{.sums = 1};
  EXPECT_EQ(*RunOnce({Gather(0, 1), Sum(1, 3)}, world), 1);
}

// Each executor has issued what is its own: the second micro-batch's gather is the first that this one waits for.
TEST(BackgroundCollectives, OfMicroBatchesInTurnsEndWithTheirs) {
  World world{.sums = 1};
  const Program p = Of({Gather(0, 1), Copy(1, 2), Sum(2, 3)}, 3);
  auto arena = std::move(*Arena::Create(p.arena_bytes));
  WatchedTable table(world);
  auto one = std::move(*Executor::Create(p, *arena, table, &table));
  auto other = std::move(*Executor::Create(p, *arena, table, &table));
  Trace trace(64);
  other->TraceInto(&trace);
  for (const auto& [executor, m] : {std::pair(one.get(), 0), {other.get(), 1}, {one.get(), 2}, {other.get(), 0}}) {
    const float x = static_cast<float>(m) + 5;
    std::ranges::fill(one->BufferView(0).as<float>(), x);
    ASSERT_TRUE(executor->RunMicroBatch(m, {}).ok());
    EXPECT_EQ(one->BufferView(1).as<float>()[0], x) << m;
  }
  const auto gathers = std::ranges::count_if(trace.events(), [](const auto& e) { return e.op == Op::kAllGather; });
  EXPECT_EQ(gathers, 2);
}

}  // namespace
}  // namespace temper::transfers_test
