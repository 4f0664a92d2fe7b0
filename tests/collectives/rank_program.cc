#include "rank_program.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "conformance.h"

namespace temper::collectives {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kStepsBefore = 20;

void Write(const std::string& out, int rank, const std::string& text) {
  std::ofstream(out + "." + std::to_string(rank)) << text;
}

// Sums of some size, until one fails or the mishap happens.
class Steps {
 public:
  explicit Steps(Communicator& communicator) {
    Mesh mesh;
    mesh.set_size(Axis::kDp, communicator.size());
    table_ = communicator.Collectives(mesh);
    const TensorType type{DType::kF32, {50'000}};
    auto arena = communicator.AllocateArena(type.bytes());
    TEMPER_CHECK(arena.ok()) << arena.status().message();
    memory_ = arena->data();
    auto kernel = table_->Make({.op = Op::kAllReduce,
                                .inputs = {type},
                                .outputs = {type},
                                .attributes = {{"axes", "dp"}, {"ranks", int64_t{communicator.size()}}}});
    if (!kernel.ok()) {
      failed_ = kernel.status();
    } else {
      kernel_ = std::move(*kernel);
    }
  }
  Status Next() { return failed_.ok() ? kernel_->Run({.inputs = &memory_, .outputs = &memory_}) : failed_; }

 private:
  std::unique_ptr<KernelTable> table_;
  std::unique_ptr<Kernel> kernel_;
  std::byte* memory_ = nullptr;
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

int RunMishap(const std::string& what, int culprit, std::unique_ptr<Communicator> communicator,
              const std::string& out) {
  const int rank = communicator->rank();
  Status status;
  std::string report;
  {
    Steps steps(*communicator);
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
  auto joined = join(checks ? Patience{} : Patience{.idle = Seconds{2}});
  if (!joined.ok()) {
    Write(out, -1, joined.status().message());
    return 1;
  }
  std::unique_ptr<Communicator> communicator = std::move(*joined);
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
