// What does saving cost? A state of 1.2 GB (100 M parameters: f32 masters and both moments) is saved in the background:
// seconds until the memory may change, seconds until it is durable, processor seconds; beside them the same bytes by
// bare write and fsync. Arguments: [FOLDER] [MB].
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_writer.h"

namespace temper::bench {
namespace {

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

void Die(const Status& s) {
  if (s.ok()) return;
  fmt::print(stderr, "{}\n", s.message());
  std::exit(1);
}

void BareWrite(const std::string& path, const std::vector<std::vector<std::byte>>& memory, double gigabytes) {
  const auto begin = Clock::now();
  const double cpu = ProcessorSeconds();
  auto file = PosixEnv().OpenForWrite(path);
  Die(file.status());
  for (const auto& m : memory) Die((*file)->Append(m));
  const double written = Since(begin);
  Die((*file)->Sync());
  Die((*file)->Close());
  fmt::print("bare write    {:6.2f} s until written, {:6.2f} s until durable ({:.2f} GB/s), {:5.2f} s of a processor\n",
             written, Since(begin), gigabytes / Since(begin), ProcessorSeconds() - cpu);
  Die(PosixEnv().RemoveFile(path));
}

void Save(const std::string& folder, const std::vector<std::vector<std::byte>>& memory, double gigabytes) {
  CheckpointContents contents;
  for (size_t i = 0; i < memory.size(); ++i) {
    const int64_t elements = static_cast<int64_t>(memory[i].size()) / 4;
    const View view{const_cast<std::byte*>(memory[i].data()), {DType::kF32, {elements}}};
    contents.tensors.push_back(
        {fmt::format("t{:04}", i), view, i % 3 ? "state.safetensors" : "model.safetensors", fmt::format("t{:04}", i)});
  }
  CheckpointWriter writer(PosixEnv(), {folder, {}});
  const double cpu = ProcessorSeconds();
  const auto begin = Clock::now();
  Die(writer.Start(contents));
  const double start = Since(begin);
  Die(writer.WaitUntilRead());
  const double until_read = Since(begin), cpu_until_read = ProcessorSeconds() - cpu;
  Die(writer.Finish());
  fmt::print(
      "CheckpointWriter {:.4f} s in Start, {:6.2f} s until read, {:6.2f} s until durable ({:.2f} GB/s), {:5.2f} + "
      "{:.2f} s "
      "of a processor\n",
      start, until_read, Since(begin), gigabytes / Since(begin), cpu_until_read,
      ProcessorSeconds() - cpu - cpu_until_read);
}

}  // namespace
}  // namespace temper::bench

int main(int argc, char** argv) {
  using namespace temper;
  using namespace temper::bench;
  const std::string folder = std::string(argc > 1 ? argv[1] : "/tmp") + "/temper_save_bench";
  const double gigabytes = (argc > 2 ? std::stod(argv[2]) : 1200.0) / 1000;
  constexpr int kTensors = 300;
  std::vector<std::vector<std::byte>> memory(kTensors);
  unsigned x = 1;
  for (auto& m : memory) {
    m.resize(static_cast<size_t>(gigabytes * 1e9 / kTensors / 4) * 4);
    for (size_t i = 0; i < m.size(); i += 64) std::memcpy(&m[i], &(x = x * 1664525 + 1013904223), 4);
  }
  Die(PrepareOutputFolder(PosixEnv(), folder, Bytes{static_cast<int64_t>(2e9 * gigabytes)}));
  for (int round = 0; round < 3; ++round) {
    BareWrite(folder + "/bare", memory, gigabytes);
    Save(folder, memory, gigabytes);
  }
  Die(PosixEnv().RemoveTree(folder));
}
