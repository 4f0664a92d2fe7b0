// How fast are weights loaded? GB/s of a safetensors file that is in the page cache, read tensor by tensor into memory
// that is already touched (as arenas are), beside plain pread of the same file: the limit, measured in the same run.
//
// usage: loading [FOLDER]     writes (and removes) a 512 MB file there; default: the temporary folder
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

#include "format/safetensors.h"
#include "format/safetensors_writer.h"

namespace temper {
namespace {

constexpr int kTensors = 64;
constexpr int64_t kRows = 2048, kColumns = 2048;  // 8 MiB each in bf16: a weight of a 1B model
constexpr int kRepeats = 7;

// Runs body(0) .. body(n-1) on `threads` threads.
void InParallel(int threads, int n, const std::function<void(int)>& body) {
  std::vector<std::thread> team;
  for (int t = 0; t < threads; ++t) {
    team.emplace_back([&, t] {
      for (int i = t; i < n; i += threads) body(i);
    });
  }
  for (std::thread& t : team) t.join();
}

double Seconds(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void Require(const Status& status) {
  TEMPER_CHECK(status.ok()) << status.message();
}

std::string NameOf(int i) {
  return fmt::format("model.layers.{}.mlp.up_proj.weight", i);
}

void Run(const std::string& folder) {
  Env& env = PosixEnv();
  const std::string path = JoinPath(folder, "temper_loading.safetensors");
  const int64_t bytes = kRows * kColumns * 2;
  std::vector<TensorDeclaration> tensors;
  for (int i = 0; i < kTensors; ++i) tensors.push_back({NameOf(i), {DType::kBF16, {kRows, kColumns}}});
  {
    auto writer = SafetensorsWriter::Create(env, path, tensors);
    Require(writer.status());
    std::vector<std::byte> data(static_cast<size_t>(bytes));
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 2654435761u >> 13);
    const double seconds = Seconds([&] {
      for (const TensorDeclaration& t : tensors) Require(writer->Append(t.name, data));
      Require(writer->Finish());
    });
    fmt::print("write with sync            {:6.2f} GB/s\n", kTensors * bytes / seconds / 1e9);
  }
  auto file = SafetensorsFile::Open(env, path);
  Require(file.status());
  auto plain = env.OpenForRead(path);
  Require(plain.status());
  constexpr size_t kAlignment = 64;  // as arenas have
  std::vector<std::byte> memory(static_cast<size_t>(kTensors * bytes * 2) + kAlignment, std::byte{1});
  std::byte* const arena =
      memory.data() + (kAlignment - reinterpret_cast<uintptr_t>(memory.data()) % kAlignment) % kAlignment;

  for (int threads : {1, 2}) {
    const auto read_plain = [&](int i) {
      Require((*plain)->ReadAt(file->data_begin() + i * bytes, {arena + i * bytes, static_cast<size_t>(bytes)}));
    };
    const auto read_raw = [&](int i) {
      Require(file->ReadTensor(NameOf(i), {arena + i * bytes, static_cast<size_t>(bytes)}));
    };
    const auto read_f32 = [&](int i) {
      Require(file->ReadAs(NameOf(i), DType::kF32, {arena + i * bytes * 2, static_cast<size_t>(bytes * 2)}));
    };
    double best[3] = {1e9, 1e9, 1e9};
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      best[0] = std::min(best[0], Seconds([&] { InParallel(threads, kTensors, read_plain); }));
      best[1] = std::min(best[1], Seconds([&] { InParallel(threads, kTensors, read_raw); }));
      best[2] = std::min(best[2], Seconds([&] { InParallel(threads, kTensors, read_f32); }));
    }
    const double gb = kTensors * bytes / 1e9;
    fmt::print(
        "{} thread{}: page cache {:6.2f} GB/s | bf16 as stored {:6.2f} ({:.2f}x) | bf16 to f32 {:6.2f} ({:.2f}x)\n",
        threads, threads == 1 ? " " : "s", gb / best[0], gb / best[1], best[0] / best[1], gb / best[2],
        best[0] / best[2]);
  }
  Require(env.RemoveFile(path));
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  const char* tmp = std::getenv("TMPDIR");
  temper::Run(argc > 1 ? argv[1] : tmp ? tmp : "/tmp");
  return 0;
}
