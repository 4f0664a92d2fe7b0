// Ranks with a device each, whose memory no other rank can access: threads with apart devices, and a library of NCCL's
// functions (nccl/nccl.cc). The same list of cases as for all communicators.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "../apart_device.h"
#include "backend/cpu/cpu_backend.h"
#include "comm/local/local_communicator.h"
#include "comm/nccl/nccl_collective.h"
#include "comm/nccl/nccl_communicator.h"
#include "conformance.h"
#include "graph/named_ops.h"
#include "transfers.h"

namespace temper::collectives::nccl_test {
namespace {

// Makes a communicator of devices look like one of hosts: copies operands to the device and back. A kernel runs on the
// stream of its lane, so that lanes do not wait for each other.
class FromHost final : public Communicator {
 public:
  FromHost(NcclCommunicator& inner, Communicator& host, Device& device) : inner_(inner), host_(host), device_(device) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  int host_ranks() const override { return inner_.host_ranks(); }
  int host_rank() const override { return inner_.host_rank(); }
  int processors() const override { return inner_.processors(); }
  std::string host_of(int rank) const override { return inner_.host_of(rank); }
  std::unique_ptr<KernelTable> Collectives(const Mesh& mesh) override {
    return std::make_unique<Table>(*this, inner_.Collectives(mesh));
  }
  Result<std::unique_ptr<Exchange>> MakeExchange(const Mesh& mesh, AxisSet axes) override {
    return inner_.MakeExchange(mesh, axes);
  }
  Result<std::span<std::byte>> AllocateArena(Bytes size) override { return host_.AllocateArena(size); }
  Status Barrier() override { return inner_.Barrier(); }
  Status AllReduceSum(std::span<double> values) override { return inner_.AllReduceSum(values); }
  Status AllReduceMax(std::span<double> values) override { return inner_.AllReduceMax(values); }
  Status Broadcast(std::span<std::byte> bytes, int root) override { return inner_.Broadcast(bytes, root); }
  void SetPatience(const Patience& patience) override { inner_.SetPatience(patience); }
  Status Check() override { return inner_.Check(); }
  void Abort(const Status& cause) override { inner_.Abort(cause); }
  bool ReportsFailure() const override { return inner_.ReportsFailure(); }
  Bytes bytes_sent() const override { return inner_.bytes_sent(); }

 private:
  class Table final : public KernelTable {
   public:
    Table(FromHost& all, std::unique_ptr<KernelTable> inner) : all_(all), inner_(std::move(inner)) {}
    const std::string& name() const override { return inner_->name(); }
    Result<std::unique_ptr<Kernel>> Make(const KernelSpec& spec) override {
      TEMPER_ASSIGN_OR_RETURN(auto kernel, inner_->Make(spec));
      return std::unique_ptr<Kernel>(std::make_unique<Copying>(all_.device_, spec, std::move(kernel)));
    }

   private:
    FromHost& all_;
    const std::unique_ptr<KernelTable> inner_;
  };

  class Copying final : public Kernel {
   public:
    Copying(Device& device, const KernelSpec& spec, std::unique_ptr<Kernel> kernel)
        : device_(device), stream_(device.StreamFor(StreamOfCollective(spec))), kernel_(std::move(kernel)) {
      Bytes all{1};
      for (const auto* types : {&spec.inputs, &spec.outputs}) {
        for (const TensorType& t : *types) all = AlignUp(all + t.bytes(), 64);
      }
      auto memory = device_.Allocate(AlignUp(all, 64) + Bytes{64});
      TEMPER_CHECK(memory.ok()) << memory.status().message();
      memory_ = *memory;
      Bytes used{};
      const auto place = [&](const std::vector<TensorType>& types, std::vector<std::span<std::byte>>* placed) {
        for (const TensorType& t : types) {
          placed->push_back(memory_.subspan(static_cast<size_t>(used.v), static_cast<size_t>(t.bytes().v)));
          used = AlignUp(used + t.bytes(), 64);
        }
      };
      place(spec.inputs, &in_);
      place(spec.outputs, &out_);
    }
    ~Copying() override { device_.Release(memory_); }

    Status Run(const KernelArgs& args) override {
      std::vector<std::byte*> in, out;
      for (size_t i = 0; i < in_.size(); ++i) {
        in.push_back(in_[i].data());
        TEMPER_RETURN_IF_ERROR(stream_.CopyToDevice({args.inputs[i], in_[i].size()}, in_[i].data()));
      }
      for (size_t i = 0; i < out_.size(); ++i) {
        std::byte* at = out_[i].data();
        for (size_t k = 0; k < in_.size(); ++k) {  // in place
          if (args.inputs[k] == args.outputs[i] && !out_[i].empty() && !in_[k].empty()) at = in_[k].data();
        }
        out.push_back(at);
      }
      TEMPER_RETURN_IF_ERROR(kernel_->Run({.inputs = in.data(), .outputs = out.data()}));
      for (size_t i = 0; i < out_.size(); ++i) {
        TEMPER_RETURN_IF_ERROR(stream_.CopyToHost(out[i], {args.outputs[i], out_[i].size()}));
      }
      return stream_.Synchronize();
    }

   private:
    Device& device_;
    Stream& stream_;
    const std::unique_ptr<Kernel> kernel_;
    std::span<std::byte> memory_;
    std::vector<std::span<std::byte>> in_, out_;
  };

  NcclCommunicator& inner_;
  Communicator& host_;
  Device& device_;
};

// Runs `body` on each rank of a new world.
void OnRanks(int ranks, Timing timing, const std::function<void(LocalCommunicator&, ApartDevice&)>& body) {
  ThreadWorld world(ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto host = world.Join(r);
      const auto kernels = MakeCpuKernels({.threads = 1});
      ApartDevice device(*kernels, timing);
      body(*host, device);
    });
  }
  for (std::thread& t : threads) t.join();
}

class Nccl : public testing::TestWithParam<int> {};

TEST_P(Nccl, EveryCollectiveEqualsAPlainLoop) {
  for (const Timing timing : {Timing::kLate, Timing::kRandom}) {
    if (timing == Timing::kRandom && GetParam() != 2) continue;
    std::mutex mutex;
    OnRanks(GetParam(), timing, [&](LocalCommunicator& host, ApartDevice& device) {
      const auto inner = NcclCommunicator::Make(host, device);
      TEMPER_CHECK(inner.ok()) << inner.status().message();
      FromHost communicator(**inner, host, device);
      const auto failures = CheckConformance(communicator, /*ranks_per_host=*/0, /*acc_apart=*/true);
      const std::lock_guard lock(mutex);
      for (const std::string& f : failures) ADD_FAILURE() << f;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Nccl, testing::Values(1, 2, 3));

const TensorType kTerms{DType::kF32, {64}};

// The kernel of a sum over two ranks.
std::unique_ptr<Kernel> MakeSum(KernelTable& collectives, bool background = false, int64_t soon = 0) {
  auto kernel = collectives.Make(
      {.op = Op::kAllReduce,
       .inputs = {kTerms},
       .outputs = {kTerms},
       .attributes = {{"axes", "fsdp"}, {"ranks", int64_t{2}}, {"background", int64_t{background}}, {"soon", soon}}});
  TEMPER_CHECK(kernel.ok()) << kernel.status().message();
  return *std::move(kernel);
}
std::unique_ptr<KernelTable> CollectivesOfTwo(NcclCommunicator& between) {
  Mesh mesh;
  mesh.set_size(Axis::kFsdp, 2);
  return between.Collectives(mesh);
}

// Two ranks: the first waits on its device for a sum in which the other never takes part, because it ended by `ends`;
// then the first calls `then`. Returns the status of the device and of work enqueued later.
struct Waited {
  Status device, later;
};
Waited WaitForOneThatDoesNotCome(const std::function<void(LocalCommunicator&)>& ends,
                                 const std::function<void(NcclCommunicator&)>& then) {
  Waited waited;
  OnRanks(2, Timing::kLate, [&](LocalCommunicator& host, ApartDevice& device) {
    const auto between = NcclCommunicator::Make(host, device);
    TEMPER_CHECK(between.ok()) << between.status().message();
    const auto table = CollectivesOfTwo(**between);
    const auto kernel = MakeSum(*table);
    if (host.rank() != 0) return ends(host);
    const auto memory = device.Allocate(kTerms.bytes());
    TEMPER_CHECK(memory.ok()) << memory.status().message();
    std::byte* const at = memory->data();
    const auto sum = [&] { return kernel->Run({.inputs = &at, .outputs = &at}); };
    TEMPER_CHECK(sum().ok());
    then(**between);
    waited.device = device.stream().Synchronize();
    waited.later = sum();
  });
  return waited;
}

TEST(Nccl, ARankThatAbortsIsNotBlockedByAMissingRank) {
  const Waited waited = WaitForOneThatDoesNotCome([](LocalCommunicator&) {},
                                                  [](NcclCommunicator& between) {
                                                    const Status own = IoError("the disk is full");
                                                    EXPECT_EQ(between.LetGo(own).message(), own.message());
                                                  });
  EXPECT_FALSE(waited.device.ok()) << "the other rank never came";
  EXPECT_EQ(waited.later.message(), "the disk is full");
}

TEST(Nccl, TheWatchdogEndsTheWaitForAFailedRank) {
  const auto begin = std::chrono::steady_clock::now();
  const Waited waited = WaitForOneThatDoesNotCome(
      [](LocalCommunicator& host) { host.Abort(Numerical("the loss is NaN in step 20")); }, [](NcclCommunicator&) {});
  EXPECT_FALSE(waited.device.ok()) << "the other rank never came";
  EXPECT_NE(waited.later.message().find("the loss is NaN in step 20"), std::string::npos) << waited.later.message();
  EXPECT_NE(waited.later.message().find("rank 1"), std::string::npos) << waited.later.message();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(Nccl, ALostPeerIsReportedInsteadOfTheLibrarysError) {
  for (const bool gone : {true, false}) {
    setenv("TEST_NCCL_REMOTE_ERROR", "1", 1);
    OnRanks(2, Timing::kLate, [&](LocalCommunicator& host, ApartDevice& device) {
      const auto between = NcclCommunicator::Make(host, device);
      TEMPER_CHECK(between.ok()) << between.status().message();
      const auto table = CollectivesOfTwo(**between);
      const auto kernel = MakeSum(*table);
      if (host.rank() != 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        if (gone) host.Abort(Numerical("the loss is NaN in step 20"));
        return;
      }
      const auto memory = device.Allocate(kTerms.bytes());
      TEMPER_CHECK(memory.ok()) << memory.status().message();
      std::byte* const at = memory->data();
      const Status own = kernel->Run({.inputs = &at, .outputs = &at});
      EXPECT_NE(own.message().find("remote process exited"), std::string::npos) << own.message();
      const std::string told = (*between)->LetGo(own).message();
      EXPECT_NE(told.find(gone ? "the loss is NaN in step 20" : own.message()), std::string::npos) << told;
    });
    unsetenv("TEST_NCCL_REMOTE_ERROR");
  }
}

// For example the network is down but the process lives: the host does not notice.
TEST(Nccl, AnAsynchronousErrorEndsTheRunUnlessALostPeerExplainsIt) {
  for (const bool gone : {true, false}) {
    SCOPED_TRACE(gone);
    setenv("TEST_NCCL_ASYNC_ERROR", "1", 1);
    Status told_other;
    const auto begin = std::chrono::steady_clock::now();
    const Waited waited = WaitForOneThatDoesNotCome(
        [&](LocalCommunicator& host) {
          std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the watchdog looks every 200
          if (gone) return host.Abort(Numerical("the loss is NaN in step 20"));
          told_other = host.Barrier();
        },
        [](NcclCommunicator&) {});
    unsetenv("TEST_NCCL_ASYNC_ERROR");
    EXPECT_FALSE(waited.device.ok()) << "the other rank never came";
    const std::string told = waited.later.message(), words = "remote process exited";
    EXPECT_EQ(told.find("the loss is NaN in step 20") != std::string::npos, gone) << told;
    EXPECT_EQ(told.find(words) != std::string::npos, !gone) << told;
    EXPECT_TRUE(gone || told_other.message().find(words) != std::string::npos) << told_other.message();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  }
}

TEST(Nccl, CommunicatorsAreAbortedTogetherSinceEachMayWaitForKernelsOfOthers) {
  setenv("TEST_NCCL_ABORTS_TOGETHER", "3", 1);
  const auto begin = std::chrono::steady_clock::now();
  OnRanks(2, Timing::kLate, [&](LocalCommunicator& host, ApartDevice& device) {
    const auto between = NcclCommunicator::Make(host, device);
    TEMPER_CHECK(between.ok()) << between.status().message();
    const auto table = CollectivesOfTwo(**between);
    for (const bool background : {false, true}) {  // a lane each, so a communicator each
      for (int64_t soon = 0; soon <= int64_t{background}; ++soon) (void)MakeSum(*table, background, soon);
    }
    if (host.rank() != 0) return;
    EXPECT_EQ((*between)->LetGo(IoError("the disk is full")).message(), "the disk is full");
  });
  unsetenv("TEST_NCCL_ABORTS_TOGETHER");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
}

// Two ranks begin the sums of two communicators in different orders. Whether all came.
bool SumsInDifferentOrdersEnd() {
  std::atomic<bool> ended{true};
  OnRanks(2, Timing::kKernelsLate, [&](LocalCommunicator& host, ApartDevice& device) {
    const auto between = NcclCommunicator::Make(host, device);
    TEMPER_CHECK(between.ok()) << between.status().message();
    const auto table = CollectivesOfTwo(**between);
    const std::unique_ptr<Kernel> sums[] = {MakeSum(*table, /*background=*/true, /*soon=*/0),
                                            MakeSum(*table, /*background=*/true, /*soon=*/1)};
    constexpr StreamUse kUses[] = {StreamUse::kCollectives, StreamUse::kSoonCollectives};
    const auto memory = (*between)->AllocateArena(kTerms.bytes() * 2);
    TEMPER_CHECK(memory.ok()) << memory.status().message();
    for (int i = 0; i < 2; ++i) {
      const auto sum = static_cast<size_t>(i) ^ static_cast<size_t>(host.rank());
      std::byte* const at = memory->data() + kTerms.bytes().v * static_cast<int64_t>(sum);
      TEMPER_CHECK(sums[sum]->Run({.inputs = &at, .outputs = &at}).ok());
      if (i == 1) continue;
      TEMPER_CHECK(host.Barrier().ok());
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // both have begun
    }
    for (const StreamUse use : kUses) {
      if (!device.StreamFor(use).Synchronize().ok()) ended = false;
    }
  });
  return ended;
}

TEST(Nccl, KernelsOfTwoStreamsFitOntoACardSoThatTheirOrderDoesNotMatter) {
  setenv("TEST_NCCL_SLOTS", "32", 1);  // two kernels of 16 blocks; NCCL's default would be 32 blocks each
  EXPECT_TRUE(SumsInDifferentOrdersEnd());
  setenv("TEST_NCCL_SLOTS", "31", 1);  // one kernel of 16 blocks, and not another
  setenv("TEST_NCCL_PATIENCE", "500", 1);
  EXPECT_FALSE(SumsInDifferentOrdersEnd()) << "the library of the tests does not see deadlocks";
  unsetenv("TEST_NCCL_SLOTS");
  unsetenv("TEST_NCCL_PATIENCE");
}

TEST(Nccl, MemoryThatTheLibraryDoesNotTakeIsNoFault) {
  setenv("TEST_NCCL_NO_MEMORY", "1", 1);
  EXPECT_TRUE(SumsInDifferentOrdersEnd());
  unsetenv("TEST_NCCL_NO_MEMORY");
}

TEST(Nccl, AMissingOrOldLibraryIsReportedInOneLine) {
  const auto missing = LoadNccl("libnccl.so.1");
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.status().message().find("libnccl.so.1, which could not be loaded"), std::string::npos)
      << missing.status().message();
  EXPECT_NE(missing.status().message().find("install it"), std::string::npos);
  EXPECT_EQ(missing.status().message().find('\n'), std::string::npos);
}

}  // namespace
}  // namespace temper::collectives::nccl_test
