#include "rank_program.h"
#include "graph/named_ops.h"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <stdexcept>
#include <string_view>
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

// The steps of ranks until one fails or the mishap happens: sums of some size by
// all; as stages of a pipeline, each receives a value from the previous rank while
// it sends one to the next; or a blocking sum and then one in the background.
class Steps {
 public:
  enum Kind { kSums, kStages, kLanes };
  Steps(Communicator& communicator, Kind kind) : kind_(kind) {
    const int n = communicator.size(), rank = communicator.rank();
    Mesh mesh;
    mesh.set_size(kind == kStages ? Axis::kPp : Axis::kDp, n);
    table_ = communicator.Collectives(mesh);
    const TensorType type{DType::kF32, {50'000}};
    auto arena = communicator.AllocateArena(type.bytes() * 2);
    TEMPER_CHECK(arena.ok()) << arena.status().message();
    memory_ = arena->data();
    other_ = memory_ + type.bytes().v;
    if (kind == kStages) {
      Make(TransferSpec(Op::kSend, (rank + 1) % n, 0, type), &kernel_);
      Make(TransferSpec(Op::kRecv, (rank + n - 1) % n, 0, type), &beside_);
      return;
    }
    KernelSpec sum{.op = Op::kAllReduce,
                   .inputs = {type},
                   .outputs = {type},
                   .attributes = {{"axes", "dp"}, {"ranks", int64_t{n}}}};
    Make(sum, &kernel_);
    sum.attributes.Set("background", int64_t{1});
    if (kind == kLanes) Make(sum, &beside_);
  }
  Status Next() {
    if (!failed_.ok()) return failed_;
    Status status, of_other;
    if (kind_ != kStages) status = RunKernel();
    if (!beside_ || !status.ok()) return status;
    std::thread other([&] { of_other = RunBeside(); }), send([&] {
      if (kind_ == kStages) status = RunKernel();
    });
    Await(kernel_.get(), &send);
    Await(beside_.get(), &other);
    return status.ok() ? of_other : status;
  }
  // For kLanes: begins with the end of a step, which the others join only after its beginning.
  void GetAhead() {
    std::thread([this] { (void)RunBeside(); }).detach();
  }
  // Waits for that as the executor would.
  Status AwaitAhead() {
    beside_->NoteAwaited(true);
    return RunBeside();
  }

 private:
  // As the executor does.
  static void Await(Kernel* kernel, std::thread* runs) {
    kernel->NoteAwaited(true);
    runs->join();
    kernel->NoteAwaited(false);
  }
  Status RunKernel() { return kernel_->Run({.inputs = &memory_, .outputs = &memory_}); }
  Status RunBeside() { return beside_->Run({.inputs = &other_, .outputs = &other_}); }
  void Make(const KernelSpec& spec, std::unique_ptr<Kernel>* kernel) {
    auto made = table_->Make(spec);
    if (!made.ok()) {
      failed_ = made.status();
    } else {
      *kernel = std::move(*made);
    }
  }

  std::unique_ptr<KernelTable> table_;
  const Kind kind_;
  std::unique_ptr<Kernel> kernel_, beside_;
  std::byte *memory_ = nullptr, *other_ = nullptr;
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

// Ranks that never communicate: each checks on the others.
int RunBeside(const std::string& what, int culprit, std::unique_ptr<Communicator> communicator,
              const std::string& out) {
  const int rank = communicator->rank();
  const Clock::time_point begin = Clock::now();
  Status status;
  while (status.ok()) {
    if (rank == culprit && Clock::now() - begin > std::chrono::milliseconds(500)) HaveMishap(what, communicator);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    status = communicator->Check();
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  Write(out, rank, fmt::format("{:.3f}\n{}\n{}\n", seconds, communicator->ReportsFailure(), status.message()));
  return kHeardOfFailure;
}

int RunMishap(std::string what, int culprit, std::unique_ptr<Communicator> communicator, const std::string& out) {
  const int rank = communicator->rank();
  const bool stages = what.starts_with("stages_"), lanes = what.starts_with("lanes_");
  if (stages || lanes) what.erase(0, what.find('_') + 1);
  Status status;
  std::string report;
  {
    Steps steps(*communicator, stages ? Steps::kStages : lanes ? Steps::kLanes : Steps::kSums);
    Clock::time_point before;
    for (int i = 0; status.ok(); ++i) {
      before = Clock::now();
      if (i == kStepsBefore && rank == culprit) {
        if (!lanes) break;
        if (what == "cross") {
          status = steps.AwaitAhead();
          break;
        }
        steps.GetAhead();
        HaveMishap(what, communicator);
      }
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

// KiB of shared memory that are resident in this process.
int64_t ResidentShared() {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("RssShmem:")) return std::atoll(line.c_str() + 9);
  }
  return -1;
}

// The files behind the memory that Open MPI shares on this host, of this rank and of its peers, as the kernel names
// them: " (deleted)" follows those that have lost their names.
std::string SegmentsOfMpi() {
  std::ifstream in("/proc/self/maps");
  std::string text;
  for (std::string line; std::getline(in, line);) {
    const size_t path = line.find('/');
    const bool is_segment =
        line.find("vader_segment.") != std::string::npos || line.find("sm_segment.") != std::string::npos;
    if (path != std::string::npos && is_segment) text += line.substr(path) + "\n";
  }
  return text;
}

// Resident memory of peers, after each of two background collectives that read (n-1)/n of kResidentCase from them.
std::string ResidentOfPeers(Communicator& communicator) {
  const int64_t n = communicator.size(), rows = kResidentCase.v / 4096 / n * n;
  Mesh mesh;
  mesh.set_size(Axis::kFsdp, communicator.size());
  const auto table = communicator.Collectives(mesh);
  const TensorType whole{DType::kF32, {rows, 1024}}, part{DType::kF32, {rows / n, 1024}};
  const auto arena = communicator.AllocateArena(whole.bytes() + part.bytes());
  TEMPER_CHECK(arena.ok()) << arena.status().message();
  std::byte *const of_whole = arena->data(), *const of_part = of_whole + whole.bytes().v;
  std::string text;
  for (const bool gathers : {true, false}) {
    KernelSpec spec{.op = gathers ? Op::kAllGather : Op::kReduceScatter,
                    .inputs = {gathers ? part : whole},
                    .outputs = {gathers ? whole : part},
                    .attributes = {{"axes", "fsdp"},
                                   {"ranks", n},
                                   {"dim", int64_t{0}},
                                   {"sizes", std::vector<double>{static_cast<double>(rows / (gathers ? n : 1))}},
                                   {"background", int64_t{1}}}};
    if (!gathers) spec.attributes.Set("acc", int64_t{0});
    auto kernel = table->Make(spec);
    TEMPER_CHECK(kernel.ok()) << kernel.status().message();
    const int64_t before = ResidentShared();
    const Status status =
        (*kernel)->Run({.inputs = gathers ? &of_part : &of_whole, .outputs = gathers ? &of_whole : &of_part});
    text += fmt::format("{}\n", status.ok() ? ResidentShared() - before : -1);
  }
  return text;
}

}  // namespace

int RunRank(const Join& join, const std::string& what, int culprit, const std::string& out, int ranks_per_host) {
  const bool checks = what == "conformance" || what == "digest" || what == "resident" || what == "segments";
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
  if (what == "segments") {
    DigestOfSums(*communicator, ranks_per_host);  // ranks have sent each other something
    Write(out, rank, SegmentsOfMpi());
    return 0;
  }
  if (constexpr std::string_view kBeside = "beside_"; what.starts_with(kBeside)) {
    return RunBeside(what.substr(kBeside.size()), culprit, std::move(communicator), out);
  }
  if (what == "resident") {
    Write(out, rank, ResidentOfPeers(*communicator));
    return 0;
  }
  return RunMishap(what, culprit, std::move(communicator), out);
}

}  // namespace temper::collectives
