#include "run/kernel_timer.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <thread>

#include "backend/cpu/cpu_backend.h"
#include "base/thread.h"
#include "runtime/arena.h"

namespace temper {
namespace {

using TimerClock = std::chrono::steady_clock;

// Fills in numbers that are neither zero nor denormal in any
// floating type. Indices are 0; document starts, every `row`.
void Fill(std::byte* at, const TensorType& type, int64_t row) {
  const bool number = type.dtype == DType::kF32 || type.dtype == DType::kBF16 || type.dtype == DType::kF64;
  std::memset(at, number ? 0x3c : 0, static_cast<size_t>(type.bytes().v));
  if (type.dtype != DType::kI32 || row == 0) return;
  auto* starts = reinterpret_cast<int32_t*>(at);
  for (int64_t t = 0; t < type.shape.elements(); ++t) starts[t] = static_cast<int32_t>(t / row * row);
}

// A kernel with its own operands, in memory like the runtime's arenas.
class Bench {
 public:
  static Result<std::unique_ptr<Bench>> Make(const TimedCase& c, int threads) {
    auto bench = std::make_unique<Bench>();
    KernelSpec spec{.op = c.op, .inputs = c.inputs, .attributes = c.attributes, .threads = threads};
    TEMPER_ASSIGN_OR_RETURN(spec.outputs, InferTypes(c.op, c.inputs, c.attributes));
    if (const auto workspace = RuleOf(c.op).workspace) {
      spec.workspace = workspace(spec.inputs, spec.outputs, spec.attributes, threads);
    }
    TEMPER_ASSIGN_OR_RETURN(bench->kernel_, MakeCpuKernels({.threads = threads})->Make(spec));
    Bytes size = AlignUp(spec.workspace, kLine);
    for (const Types* types : {&spec.inputs, &spec.outputs}) {
      for (const TensorType& t : *types) size += AlignUp(t.bytes(), kLine);
    }
    TEMPER_ASSIGN_OR_RETURN(bench->arena_, Arena::Create(size));
    Bytes at = AlignUp(spec.workspace, kLine);
    const auto place = [&](const Types& types, std::vector<std::byte*>* addresses) {
      for (const TensorType& t : types) {
        addresses->push_back(bench->arena_->At(at));
        Fill(addresses->back(), t, c.attributes.IntOr("row", 0));
        at += AlignUp(t.bytes(), kLine);
      }
    };
    place(spec.inputs, &bench->inputs_);
    place(spec.outputs, &bench->outputs_);
    return bench;
  }

  Bytes bytes() const { return arena_->size(); }
  void Run() {
    const Status status = kernel_->Run({inputs_.data(), outputs_.data(), arena_->At({0})});
    TEMPER_CHECK(status.ok()) << status.message();
  }

 private:
  static constexpr int64_t kLine = 64;
  std::unique_ptr<Kernel> kernel_;
  std::unique_ptr<Arena> arena_;
  std::vector<std::byte*> inputs_, outputs_;
};

double ElapsedSince(TimerClock::time_point since) {
  return std::chrono::duration<double>(TimerClock::now() - since).count();
}

}  // namespace

Cost CostOf(const TimedCase& c) {
  const Result<Types> outputs = InferTypes(c.op, c.inputs, c.attributes);
  TEMPER_CHECK(outputs.ok()) << outputs.status().message();
  return RuleOf(c.op).cost(c.inputs, *outputs, c.attributes);
}

namespace {

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Seconds of each call that begins within `budget`.
double SecondsEach(Seconds budget, const std::function<void()>& call) {
  const auto begin = TimerClock::now();
  int calls = 0;
  do {
    call();
    ++calls;
  } while (ElapsedSince(begin) < budget.v);
  return ElapsedSince(begin) / calls;
}

}  // namespace

KernelTimer::Beside KernelTimer::TimeBeside(const TimedCase& c, const std::function<void(int rank)>& move,
                                            Seconds budget) const {
  constexpr int kRounds = 3;
  struct Round {
    double kernels, moves, alone;
  };
  std::vector<std::vector<Round>> rounds(static_cast<size_t>(ranks_));
  std::barrier ready(ranks_);
  const auto rank = [&](int r) {
    const auto bench = Bench::Make(c, threads_);
    TEMPER_CHECK(bench.ok()) << bench.status().message();
    const auto run = [&] { (*bench)->Run(); };
    const auto moves = [&] { move(r); };
    run();
    for (int round = 0; round < kRounds; ++round) {
      ready.arrive_and_wait();
      const double kernel = SecondsEach(budget, run);
      ready.arrive_and_wait();
      const double alone = SecondsEach(budget, moves);
      ready.arrive_and_wait();
      std::atomic<bool> done = false;
      double beside = 0;
      std::thread mover = StartThread([&] {
        beside = SecondsEach(budget, moves);
        while (!done) moves();
      });
      const double slowed = SecondsEach(budget, run);
      done = true;
      mover.join();
      rounds[static_cast<size_t>(r)].push_back({slowed / kernel - 1, beside / alone - 1, alone});
    }
  };
  std::vector<std::thread> others;
  for (int r = 1; r < ranks_; ++r) others.push_back(StartThread([&rank, r] { rank(r); }));
  rank(0);
  for (std::thread& t : others) t.join();
  std::vector<double> kernels, moves, alone;
  for (const std::vector<Round>& of_rank : rounds) {
    for (const Round& round : of_rank) {
      kernels.push_back(round.kernels);
      moves.push_back(round.moves);
      alone.push_back(round.alone);
    }
  }
  return {.contention = {.slows = std::max(Median(kernels), 0.0), .slowed = std::max(Median(moves), 0.0)},
          .alone = {Median(alone)}};
}

Seconds KernelTimer::Time(const TimedCase& c, Seconds budget, Bytes memory) const {
  constexpr int kBatches = 5, kMostCopies = 64;
  std::vector<double> seconds(static_cast<size_t>(ranks_), 0);
  std::barrier ready(ranks_);
  const auto rank = [&](int r) {
    std::vector<std::unique_ptr<Bench>> benches;
    for (Bytes made; benches.empty() || (made < memory && benches[0]->bytes() * kMostCopies >= memory);) {
      auto bench = Bench::Make(c, threads_);
      if (!bench.ok()) break;
      (*bench)->Run();  // warms up memory and code
      if (benches.empty()) (*bench)->Run();
      made += (*bench)->bytes();
      benches.push_back(std::move(*bench));
    }
    ready.arrive_and_wait();
    if (benches.empty()) return;
    size_t turn = 0;
    const auto run = [&] { benches[turn++ % benches.size()]->Run(); };
    const auto start = TimerClock::now();
    run();
    const int per_batch = std::max(1, static_cast<int>(budget.v / kBatches / std::max(ElapsedSince(start), 1e-9)));
    std::vector<double> batches;
    const auto begin = TimerClock::now();
    while (batches.size() < 3 || (batches.size() < kBatches && ElapsedSince(begin) < 2 * budget.v)) {
      const auto batch = TimerClock::now();
      for (int i = 0; i < per_batch; ++i) run();
      batches.push_back(ElapsedSince(batch) / per_batch);
    }
    seconds[static_cast<size_t>(r)] = *std::min_element(batches.begin(), batches.end());
  };
  std::vector<std::thread> others;
  for (int r = 1; r < ranks_; ++r) others.push_back(StartThread([&rank, r] { rank(r); }));
  rank(0);
  for (std::thread& t : others) t.join();
  double sum = 0;
  for (const double s : seconds) sum += s;
  return {sum / ranks_};
}

}  // namespace temper
