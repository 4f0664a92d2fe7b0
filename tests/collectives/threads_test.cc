// Ranks as threads of one process.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "comm/local/local_communicator.h"
#include "conformance.h"
#include "graph/named_ops.h"
#include "rank_program.h"
#include "transfers.h"

namespace temper::collectives::threads_test {
namespace {

// Runs `body` on each rank of a new world.
void OnRanks(int ranks, const Patience& patience, const std::function<void(LocalCommunicator&)>& body) {
  ThreadWorld world(ranks, patience);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto communicator = world.Join(r);
      body(*communicator);
    });
  }
  for (std::thread& t : threads) t.join();
}

// A collective over dp whose parts are even, along dim 0.
KernelSpec CutSpec(Op op, int ranks, const TensorType& whole) {
  TensorType part = whole;
  part.shape.set_dim(0, whole.shape[0] / ranks);
  KernelSpec spec{.op = op, .attributes = {{"axes", "dp"}, {"ranks", int64_t{ranks}}}};
  spec.inputs = {op == Op::kAllGather ? part : whole};
  spec.outputs = {op == Op::kReduceScatter ? part : whole};
  if (op == Op::kAllGather || op == Op::kReduceScatter) {
    spec.attributes.Set("dim", int64_t{0});
    spec.attributes.Set("sizes", std::vector<double>{static_cast<double>(spec.outputs[0].shape[0])});
  }
  if (op == Op::kReduceScatter) spec.attributes.Set("acc", int64_t{0});
  return spec;
}

class Threads : public testing::TestWithParam<int> {};

TEST_P(Threads, EveryCollectiveEqualsAPlainLoop) {
  std::mutex mutex;
  OnRanks(GetParam(), {}, [&](LocalCommunicator& communicator) {
    const auto failures = CheckConformance(communicator);
    const std::lock_guard lock(mutex);
    for (const std::string& f : failures) ADD_FAILURE() << f;
  });
}

TEST_P(Threads, SumsHaveTheSameBitsOnEveryRankAndInEveryRun) {
  std::mutex mutex;
  std::vector<uint64_t> digests;
  for (int run = 0; run < 3; ++run) {
    OnRanks(GetParam(), {}, [&](LocalCommunicator& communicator) {
      const uint64_t digest = DigestOfSums(communicator);
      const std::lock_guard lock(mutex);
      digests.push_back(digest);
    });
  }
  for (const uint64_t d : digests) EXPECT_EQ(d, digests[0]);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Threads, testing::Values(1, 2, 3, 4, 5, 6));

// Ranks of mismatched pipelines do not take one value for another.
TEST(Threads, ATransferOfAnotherValueIsRefusedOnBothSides) {
  const TensorType value{DType::kF32, {8}};
  for (const auto& [tag, type] : {std::pair(2, value), std::pair(1, TensorType{DType::kF32, {2, 4}})}) {
    std::mutex mutex;
    std::vector<std::string> heard;
    OnRanks(2, {}, [&, tag = tag, type = type](LocalCommunicator& communicator) {
      Mesh mesh;
      mesh.set_size(Axis::kPp, 2);
      const auto table = communicator.Collectives(mesh);
      const auto arena = communicator.AllocateArena(MiB(1));
      ASSERT_TRUE(arena.ok());
      const bool sends = communicator.rank() == 0;
      const auto kernel =
          table->Make(sends ? TransferSpec(Op::kSend, 1, 1, value) : TransferSpec(Op::kRecv, 0, tag, type));
      ASSERT_TRUE(kernel.ok()) << kernel.status().message();
      std::byte* memory = arena->data();
      const Status status = (*kernel)->Run({.inputs = &memory, .outputs = &memory});
      EXPECT_FALSE(table->Make(TransferSpec(Op::kSend, communicator.rank(), 1, value)).ok()) << "to itself";
      const std::lock_guard lock(mutex);
      heard.push_back(status.message());
    });
    ASSERT_EQ(heard.size(), 2u);
    EXPECT_EQ(heard[0], heard[1]);
    EXPECT_EQ(heard[0],
              "rank 0 sends another value than rank 1 is waiting for: ranks must run programs of one pipeline");
  }
}

// The errors of all other ranks if one does `mishap` instead of entering the barrier in which they wait.
std::vector<std::string> Heard(int ranks, int culprit,
                               const std::function<void(std::unique_ptr<LocalCommunicator>)>& mishap,
                               const Patience& patience = {}) {
  ThreadWorld world(ranks, patience);
  std::mutex mutex;
  std::vector<std::string> heard;
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      auto communicator = world.Join(r);
      TEMPER_CHECK(communicator->Barrier().ok());
      if (r == culprit) return mishap(std::move(communicator));
      const Status first = communicator->Barrier(), second = communicator->Barrier();
      const std::lock_guard lock(mutex);
      EXPECT_EQ(first.message(), second.message()) << "errors are sticky";
      heard.push_back(first.message());
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(static_cast<int>(heard.size()), ranks - 1);
  for (const std::string& h : heard) EXPECT_EQ(h, heard[0]) << "all get the same message";
  return heard;
}

// The rules' volumes are also the bytes actually read from other ranks.
TEST(Threads, BytesReadFromPeersEqualTheRules) {
  std::atomic<int64_t> moved{0}, sent{0};
  OnRanks(4, {}, [&](LocalCommunicator& communicator) {
    Mesh mesh;
    mesh.set_size(Axis::kDp, 4);
    const auto table = communicator.Collectives(mesh);
    const auto arena = communicator.AllocateArena(MiB(8));
    ASSERT_TRUE(arena.ok());
    std::byte* in = arena->data();
    std::byte* out = in + MiB(4).v;
    for (const Op op : {Op::kAllGather, Op::kReduceScatter, Op::kAllReduce, Op::kShift}) {
      const auto kernel = table->Make(CutSpec(op, 4, {DType::kF32, {400, 1000}}));
      ASSERT_TRUE(kernel.ok()) << kernel.status().message();
      ASSERT_TRUE((*kernel)->Run({.inputs = &in, .outputs = &out}).ok());
    }
    moved += communicator.bytes_moved().v;
    sent += communicator.bytes_sent().v;
  });
  EXPECT_EQ(moved, sent);
  EXPECT_EQ(sent, 4 * (4 * 300 + 400) * 1000 * 4);
}

// From its second run on, a step allocates no memory.
TEST(Threads, RunningAKernelAllocatesNothing) {
  OnRanks(3, {}, [&](LocalCommunicator& communicator) {
    const int n = communicator.size();
    Mesh mesh;
    mesh.set_size(Axis::kDp, n);
    const auto table = communicator.Collectives(mesh);
    const auto exchange = communicator.MakeExchange(mesh, Axis::kDp);
    ASSERT_TRUE(exchange.ok());
    const auto arena = communicator.AllocateArena(MiB(8));
    ASSERT_TRUE(arena.ok());
    std::vector<std::unique_ptr<Kernel>> kernels;
    for (const Op op : {Op::kAllGather, Op::kReduceScatter, Op::kAllReduce, Op::kShift}) {
      for (const int64_t rows : {3, 3000}) {
        auto kernel = table->Make(CutSpec(op, n, {DType::kF32, {rows, 100}}));
        ASSERT_TRUE(kernel.ok()) << kernel.status().message();
        kernels.push_back(std::move(*kernel));
      }
    }
    std::byte* in = arena->data();
    std::byte* out = in + MiB(4).v;
    std::vector<float> mine(10), all(30);
    int64_t before = 0;
    for (int step = 0; step < 3; ++step) {
      if (step == 1) {
        ASSERT_TRUE(communicator.Barrier().ok());
        before = Allocations();
      }
      for (const auto& kernel : kernels) ASSERT_TRUE(kernel->Run({.inputs = &in, .outputs = &out}).ok());
      ASSERT_TRUE((*exchange)->AllGather(mine, all).ok());
    }
    ASSERT_TRUE(communicator.Barrier().ok());
    EXPECT_EQ(Allocations(), before);
    ASSERT_TRUE(communicator.Barrier().ok());
  });
#ifndef TEMPER_SANITIZED
  const int64_t before = Allocations();
  delete new std::string(100, 'x');
  EXPECT_EQ(Allocations(), before + 2) << "the counter works";
#endif
}

TEST(ThreadFailure, AnAbortReachesAllWithRankAndCause) {
  const auto heard = Heard(4, 2, [](auto communicator) {
    communicator->Abort(Numerical("the loss is NaN in step 7"));
    EXPECT_TRUE(communicator->ReportsFailure());
    EXPECT_EQ(communicator->Barrier().code(), StatusCode::kNumerical);
  });
  EXPECT_EQ(heard[0], "rank 2: the loss is NaN in step 7");
}

TEST(ThreadFailure, ARankThatLeavesIsNamed) {
  const auto heard = Heard(3, 1, [](auto communicator) { communicator.reset(); });
  EXPECT_TRUE(heard[0].find("rank 1 has left the run") != std::string::npos) << heard[0];
}

TEST(ThreadFailure, AHangingRankIsNotWaitedForForever) {
  const auto heard = Heard(3, 0,
                           [](auto communicator) {
                             std::this_thread::sleep_for(std::chrono::seconds(3));
                             EXPECT_FALSE(communicator->Barrier().ok());
                           },
                           {.idle = Seconds{0.5}});
  EXPECT_TRUE(heard[0].find("rank 0 gives no sign of life") != std::string::npos) << heard[0];
}

TEST(ThreadFailure, ARankThatComputesIsWaitedFor) {
  OnRanks(2, {.idle = Seconds{0.3}}, [](LocalCommunicator& communicator) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
    while (communicator.rank() == 1 && std::chrono::steady_clock::now() < until) continue;
    EXPECT_TRUE(communicator.Barrier().ok());
  });
}

TEST(ThreadFailure, RanksThatRunDifferentProgramsAreReported) {
  OnRanks(2, {}, [](LocalCommunicator& communicator) {
    double x = 1;
    const Status status = communicator.rank() == 0 ? communicator.Barrier() : communicator.AllReduceSum({&x, 1});
    EXPECT_TRUE(status.message().find("must run the same program") != std::string::npos) << status.message();
  });
}

TEST(ThreadFailure, RanksThatRunDifferentCollectivesAreReported) {
  OnRanks(3, {}, [](LocalCommunicator& communicator) {
    Mesh mesh;
    mesh.set_size(Axis::kDp, 3);
    const TensorType type{DType::kF32, {communicator.rank() == 2 ? 5 : 4}};
    const auto kernel = communicator.Collectives(mesh)->Make({.op = Op::kAllReduce,
                                                              .inputs = {type},
                                                              .outputs = {type},
                                                              .attributes = {{"axes", "dp"}, {"ranks", int64_t{3}}}});
    ASSERT_FALSE(kernel.ok());
    EXPECT_TRUE(kernel.status().message().find("must run the same program") != std::string::npos)
        << kernel.status().message();
  });
}

}  // namespace
}  // namespace temper::collectives::threads_test
