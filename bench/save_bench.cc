// What does a background save cost training? A state (1.2 GB: 100 M parameters, f32 masters and both moments) is saved
// alone, for the processor time that it takes, and then while a training stand-in runs: steps of matrix products on all
// cores, each followed by the wait for the save to have read the memory, as before an update; there its cost is what
// the steps take longer than as many just before. The limit beside it is a bare write and fsync of the same bytes. Both
// ways of writing: around the page cache, as CheckpointWriter does, and through it. Arguments: [FOLDER] [MB] [SECONDS
// OF A STEP] [ROUNDS]. Rounds in which the rest of the machine was busy say nothing of steps.
#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "bench/measure.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_writer.h"
#include "graph/named_ops.h"
#include "runtime/arena.h"

namespace temper::bench {
namespace {

constexpr int kSteps = 3;  // steps that a save may overlap

using Clock = std::chrono::steady_clock;
double Since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

double ProcessorSeconds() {
  rusage u;
  getrusage(RUSAGE_SELF, &u);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(u.ru_utime) + seconds(u.ru_stime);
}

// For all processes and the kernel, on all cores.
double BusySeconds() {
  std::ifstream stat("/proc/stat");
  std::string cpu;
  double user, nice, system, idle, wait, irq, softirq, steal;
  stat >> cpu >> user >> nice >> system >> idle >> wait >> irq >> softirq >> steal;
  return (user + nice + system + irq + softirq + steal) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double Median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<int64_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

void Die(const Status& s) {
  if (s.ok()) return;
  fmt::print(stderr, "{}\n", s.message());
  std::exit(1);
}

using Memory = std::vector<std::span<std::byte>>;

// Matrix products on all cores for about the time of a step.
class Step {
 public:
  explicit Step(double seconds) : product_(Op::kLinear, {Matrix(), Matrix()}, {}, {.threads = Threads()}) {
    products_ = std::max(1, static_cast<int>(seconds / Measure([&] { product_.Run(); }).median));
  }
  void Run() {
    for (int i = 0; i < products_; ++i) product_.Run();
  }

 private:
  static TensorType Matrix() { return {DType::kBF16, {1024, 1024}}; }
  static int Threads() { return static_cast<int>(std::thread::hardware_concurrency()); }

  Instruction product_;
  int products_ = 1;
};

double BareWrite(const std::string& path, const Memory& memory) {
  const auto begin = Clock::now();
  auto file = PosixEnv().OpenForWrite(path);
  Die(file.status());
  for (const auto& m : memory) Die((*file)->Append(m));
  Die((*file)->Sync());
  Die((*file)->Close());
  const double seconds = Since(begin);
  Die(PosixEnv().RemoveFile(path));
  return seconds;
}

// The file system, through its page cache always.
class CachedEnv final : public Env {
 public:
  using Readable = std::unique_ptr<RandomAccessFile>;
  using Writable = std::unique_ptr<WritableFile>;
  Result<Readable> OpenForRead(const std::string& p) override { return env_.OpenForRead(p); }
  Result<Writable> OpenForWrite(const std::string& p, WriteMode mode) override {
    return env_.OpenForWrite(p, mode == WriteMode::kDirect ? WriteMode::kReplace : mode);
  }
  Status Rename(const std::string& a, const std::string& b) override { return env_.Rename(a, b); }
  Status RemoveFile(const std::string& p) override { return env_.RemoveFile(p); }
  Status RemoveTree(const std::string& p) override { return env_.RemoveTree(p); }
  Status CreateFolders(const std::string& p) override { return env_.CreateFolders(p); }
  Status SyncFolder(const std::string& p) override { return env_.SyncFolder(p); }
  Status Truncate(const std::string& p, int64_t n) override { return env_.Truncate(p, n); }
  Result<std::vector<std::string>> List(const std::string& p) override { return env_.List(p); }
  bool IsFile(const std::string& p) override { return env_.IsFile(p); }
  bool IsFolder(const std::string& p) override { return env_.IsFolder(p); }
  Result<Bytes> FreeSpace(const std::string& p) override { return env_.FreeSpace(p); }

 private:
  Env& env_ = PosixEnv();
};

struct SaveCost {
  // With nothing beside it: seconds until durable, processor seconds of the process.
  double alone_durable, alone_processor;
  // With steps beside it: their delay, seconds until the memory was read, until durable, processor seconds of the rest
  // of the machine, including the kernel's write-back.
  double cost, until_read, until_durable, others;
};

SaveCost Save(Env& env, const std::string& folder, const Memory& memory, Step& step) {
  CheckpointContents contents;
  for (size_t i = 0; i < memory.size(); ++i) {
    const int64_t elements = static_cast<int64_t>(memory[i].size()) / 4;
    const View view{memory[i].data(), {DType::kF32, {elements}}};
    contents.tensors.push_back(
        {fmt::format("t{:04}", i), view, i % 3 ? "state.safetensors" : "model.safetensors", fmt::format("t{:04}", i)});
  }
  CheckpointWriter writer(env, {folder, {}});
  SaveCost result{.alone_processor = -ProcessorSeconds()};
  Die(writer.Start(contents));
  Die(writer.Finish());
  result.alone_processor += ProcessorSeconds();
  result.alone_durable = writer.last_timing().until_durable;

  result.others = -BusySeconds() + ProcessorSeconds();
  auto begin = Clock::now();
  for (int i = 0; i < kSteps; ++i) step.Run();
  const double without = Since(begin);
  begin = Clock::now();
  Die(writer.Start(contents));
  for (int i = 0; i < kSteps; ++i) {
    step.Run();
    Die(writer.WaitUntilRead());
  }
  result.cost = Since(begin) - without;
  Die(writer.Finish());
  result.others += BusySeconds() - ProcessorSeconds();
  result.until_read = writer.last_timing().until_read;
  result.until_durable = writer.last_timing().until_durable;
  return result;
}

void Report(const char* name, const std::vector<SaveCost>& costs) {
  const auto values = [&](double SaveCost::*field) {
    std::vector<double> v;
    for (const SaveCost& c : costs) v.push_back(c.*field);
    std::sort(v.begin(), v.end());
    return v;
  };
  const auto show = [&](double SaveCost::*field) {
    const auto v = values(field);
    return fmt::format("{:.2f} ({:.2f} to {:.2f})", v[v.size() / 2], v.front(), v.back());
  };
  fmt::print("{}\n  alone: durable after {} s, {} s of a processor\n", name, show(&SaveCost::alone_durable),
             show(&SaveCost::alone_processor));
  fmt::print(
      "  beside {} steps: they take {} s longer; read after {} s, durable after {} s; rest of the machine {} s\n",
      kSteps, show(&SaveCost::cost), show(&SaveCost::until_read), show(&SaveCost::until_durable),
      show(&SaveCost::others));
}

}  // namespace
}  // namespace temper::bench

int main(int argc, char** argv) {
  using namespace temper;
  using namespace temper::bench;
  const std::string folder = std::string(argc > 1 ? argv[1] : "/tmp") + "/temper_save_bench";
  const double gigabytes = (argc > 2 ? std::stod(argv[2]) : 1200.0) / 1000;
  const double seconds = argc > 3 ? std::stod(argv[3]) : 1.8;
  const int rounds = argc > 4 ? std::stoi(argv[4]) : 5;
  constexpr int kTensors = 300;
  // Laid out like a run's state: in one arena, each tensor at the start of a block of the disk.
  const Bytes tensor = AlignUp({static_cast<int64_t>(gigabytes * 1e9 / kTensors)}, kDirectBlock);
  auto arena = Arena::Create(tensor * kTensors);
  Die(arena.status());
  Memory memory;
  unsigned x = 1;
  for (int64_t t = 0; t < kTensors; ++t) {
    const std::span<std::byte> m((*arena)->At(tensor * t), static_cast<size_t>(tensor.v));
    memory.push_back(m);
    for (size_t i = 0; i < m.size(); i += 64) std::memcpy(&m[i], &(x = x * 1664525 + 1013904223), 4);
  }
  Die(PrepareOutputFolder(PosixEnv(), folder, Bytes{static_cast<int64_t>(2e9 * gigabytes)}));
  Step step(seconds);
  CachedEnv cached;
  std::vector<double> bare;
  std::vector<SaveCost> around, through;
  for (int round = 0; round < rounds; ++round) {
    bare.push_back(BareWrite(folder + "/bare", memory));
    around.push_back(Save(PosixEnv(), folder, memory, step));
    through.push_back(Save(cached, folder, memory, step));
    fmt::print(stderr, "round {}: bare {:.2f} s; around {:.2f} s (rest {:.2f}), through {:.2f} s (rest {:.2f})\n",
               round, bare.back(), around.back().cost, around.back().others, through.back().cost,
               through.back().others);
  }
  fmt::print("medians (and extremes) of {} rounds; bare write and fsync: {:.2f} s, {:.2f} GB/s\n", rounds, Median(bare),
             gigabytes / Median(bare));
  Report("around the page cache", around);
  Report("through the page cache", through);
  Die(PosixEnv().RemoveTree(folder));
}
