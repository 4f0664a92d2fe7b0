#include "rank_program.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "conformance.h"
#include "transfers.h"

namespace temper::collectives {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kStepsBefore = 20;

void Write(const std::string& out, int rank, const std::string& text) {
  std::ofstream(out + "." + std::to_string(rank)) << text;
}

// What ranks do until one fails or the mishap happens: sums of some size by all, or, as stages of a pipeline, each
// takes a value from the rank before while it sends one to the next.
class Steps {
 public:
  Steps(Communicator& communicator, bool transfers) {
    const int n = communicator.size(), rank = communicator.rank();
    Mesh mesh;
    mesh.set_size(transfers ? Axis::kPp : Axis::kDp, n);
    table_ = communicator.Collectives(mesh);
    const TensorType type{DType::kF32, {50'000}};
    auto arena = communicator.AllocateArena(type.bytes() * 2);
    TEMPER_CHECK(arena.ok()) << arena.status().message();
    memory_ = arena->data();
    received_ = memory_ + type.bytes().v;
    if (transfers) {
      Make(TransferSpec(Op::kSend, (rank + 1) % n, 0, type), &kernel_);
      Make(TransferSpec(Op::kRecv, (rank + n - 1) % n, 0, type), &receive_);
    } else {
      Make({.op = Op::kAllReduce,
            .inputs = {type},
            .outputs = {type},
            .attributes = {{"axes", "dp"}, {"ranks", int64_t{n}}}},
           &kernel_);
    }
  }
  Status Next() {
    if (!failed_.ok()) return failed_;
    Status received;
    std::thread beside([&] {
      if (receive_) received = receive_->Run({.inputs = &received_, .outputs = &received_});
    });
    const Status status = kernel_->Run({.inputs = &memory_, .outputs = &memory_});
    beside.join();
    return status.ok() ? received : status;
  }

 private:
  void Make(const KernelSpec& spec, std::unique_ptr<Kernel>* kernel) {
    auto made = table_->Make(spec);
    if (!made.ok()) {
      failed_ = made.status();
    } else {
      *kernel = std::move(*made);
    }
  }

  std::unique_ptr<KernelTable> table_;
  std::unique_ptr<Kernel> kernel_, receive_;
  std::byte *memory_ = nullptr, *received_ = nullptr;
  Status failed_;
};

void HaveMishap(const std::string& what, std::unique_ptr<Communicator>& communicator) {
  if (what == "abort") communicator->Abort(Numerical("the loss is NaN in step 20"));
  if (what == "exit") _exit(9);
  if (what == "kill") kill(getpid(), SIGKILL);
  if (what == "stop") kill(getpid(), SIGSTOP);
  while (what == "hang") pause();
  if (what == "leave") communicator.reset();
  if (what == "throw") throw std::runtime_error("nobody catches this");
}

int RunMishap(std::string what, int culprit, std::unique_ptr<Communicator> communicator, const std::string& out) {
  const int rank = communicator->rank();
  constexpr std::string_view kStages = "stages_";
  const bool transfers = what.starts_with(kStages);
  if (transfers) what.erase(0, kStages.size());
  Status status;
  std::string report;
  {
    Steps steps(*communicator, transfers);
    Clock::time_point before;
    for (int i = 0; status.ok(); ++i) {
      if (i == kStepsBefore && rank == culprit) break;
      before = Clock::now();
      status = steps.Next();
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - before).count();
    report = fmt::format("{:.3f}\n{}\n{}\n", seconds, communicator->ReportsFailure(), status.message());
  }
  if (rank == culprit && status.ok()) {
    HaveMishap(what, communicator);
    Write(out, rank, "went on");
    return what == "leave" ? 0 : kHeardOfFailure;
  }
  Write(out, rank, report);
  return kHeardOfFailure;
}

}  // namespace

int RunRank(const Join& join, const std::string& what, int culprit, const std::string& out, int ranks_per_host) {
  const bool checks = what == "conformance" || what == "digest";
  auto joined = join();
  if (!joined.ok()) {
    Write(out, -1, joined.status().message());
    return 1;
  }
  std::unique_ptr<Communicator> communicator = std::move(*joined);
  if (!checks) communicator->SetPatience({.idle = Seconds{2}});
  const int rank = communicator->rank();
  if (what == "conformance") {
    std::string text;
    for (const std::string& failure : CheckConformance(*communicator, ranks_per_host)) text += failure + "\n";
    Write(out, rank, text);
    return text.empty() ? 0 : 1;
  }
  if (what == "digest") {
    Write(out, rank, fmt::format("{:016x}", DigestOfSums(*communicator, ranks_per_host)));
    return 0;
  }
  return RunMishap(what, culprit, std::move(communicator), out);
}

}  // namespace temper::collectives
