// Shared by the benchmarks: timing that survives a noisy machine, and kernels on buffers of their own.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "graph/rule.h"

namespace temper::bench {

inline constexpr Bytes kHugePage{2 << 20};

struct Timing {
  double best = 0, median = 0;  // seconds
};

// Calls `run` for about `seconds`, at least three times after an uncounted first one.
inline Timing Measure(const std::function<void()>& run, double seconds = 0.3) {
  using Clock = std::chrono::steady_clock;
  run();
  std::vector<double> times;
  double spent = 0;
  while (times.size() < 3 || (spent < seconds && times.size() < 10000)) {
    const auto start = Clock::now();
    run();
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    spent += times.back();
  }
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2]};
}

// n small random numbers; integers stay as they are.
inline void Randomize(void* to, DType dtype, int64_t n) {
  std::mt19937 engine(1);
  for (int64_t i = 0; i < n; ++i) {
    const float x = static_cast<float>(engine() % 2048) / 1024 - 1;
    if (dtype == DType::kF32) static_cast<float*>(to)[i] = x;
    if (dtype == DType::kBF16) static_cast<bf16*>(to)[i] = ToBF16(x);
  }
}

// One instruction with operands of its own: small random numbers; integers are zero until set.
class Instruction {
 public:
  Instruction(Op op, Types inputs, Attributes attributes, const CpuOptions& options)
      : spec_{.op = op, .inputs = std::move(inputs), .attributes = std::move(attributes), .threads = options.threads} {
    spec_.outputs = *RuleOf(op).infer(spec_.inputs, spec_.attributes);
    const OpRule& rule = RuleOf(op);
    if (rule.workspace)
      spec_.workspace = rule.workspace(spec_.inputs, spec_.outputs, spec_.attributes, options.threads);
    kernel_ = std::move(*MakeCpuKernels(options)->Make(spec_));
    for (const TensorType& t : spec_.inputs) {
      in_.push_back(Allocate(t.bytes()));
      Randomize(in_.back(), t.dtype, t.shape.elements());
    }
    for (const TensorType& t : spec_.outputs) out_.push_back(Allocate(t.bytes()));
    workspace_ = Allocate(spec_.workspace);
  }
  template <class T>
  T* input(int i) {
    return reinterpret_cast<T*>(in_[static_cast<size_t>(i)]);
  }
  // Output `o` overwrites input `i`, as in accumulating gradients.
  void InPlace(int o, int i) { out_[static_cast<size_t>(o)] = in_[static_cast<size_t>(i)]; }
  // Output `o` as input `i` of another instruction.
  void CopyOutput(int o, Instruction& to, int i) {
    std::memcpy(to.in_[static_cast<size_t>(i)], out_[static_cast<size_t>(o)],
                static_cast<size_t>(spec_.outputs[static_cast<size_t>(o)].bytes().v));
  }
  void Run() {
    const Status status = kernel_->Run({in_.data(), out_.data(), workspace_});
    TEMPER_CHECK(status.ok()) << status.message();
  }
  const KernelSpec& spec() const { return spec_; }

 private:
  std::byte* Allocate(Bytes size) {
    // On huge pages where they are larger than one, as the arena of a run is.
    const Bytes alignment = size < kHugePage ? Bytes{64} : kHugePage;
    const auto n = static_cast<size_t>(AlignUp(Bytes{std::max<int64_t>(size.v, 1)}, alignment.v).v);
    memory_.emplace_back(static_cast<std::byte*>(std::aligned_alloc(static_cast<size_t>(alignment.v), n)), &std::free);
    if (size >= kHugePage) (void)madvise(memory_.back().get(), n, MADV_HUGEPAGE);
    std::memset(memory_.back().get(), 0, n);
    return memory_.back().get();
  }

  KernelSpec spec_;
  std::unique_ptr<Kernel> kernel_;
  std::vector<std::unique_ptr<std::byte, void (*)(void*)>> memory_;
  std::vector<std::byte*> in_, out_;
  std::byte* workspace_ = nullptr;
};

// "--threads 2 --isa avx2": accepted by all benchmarks.
inline CpuOptions OptionsFrom(int argc, char** argv) {
  CpuOptions options{.threads = 2};
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--threads") options.threads = std::max(1, std::atoi(argv[i + 1]));
    if (flag == "--isa") options.isa = ParseIsa(argv[i + 1]).value_or(options.isa);
  }
  return options;
}

}  // namespace temper::bench
