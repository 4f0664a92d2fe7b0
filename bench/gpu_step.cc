// How fast are whole training steps on a GPU? A model's shape with random weights and rows of one document each,
// through the same passes and the same executor as `temper train`; MFU is against the peak of matrix products measured
// in this run, flops as CompiledRun::ModelFlops counts them.
//   gpu_step CONFIG.json lora|int8|nf4|full ROWS MICRO_BATCHES [fit|none|block] [STEPS] [graphs|plain] [LIMIT]
// `int8`, `nf4`: LoRA on a base that is kept so.
// ROWS of 2048 tokens are a micro-batch. `fit`: as many of ROWS as fit into what is free on the card, down to a quarter
// of them before blocks are recomputed; what fits in no way is a line that says so, and no error. Within LIMIT of the
// device's memory ("20 GiB") the rest lies in the host's, as `temper plan --cluster 1xH200` places it; then its
// forecast is told, too. One line on stdout.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <tuple>

#include "backend/cpu/cpu_backend.h"
#include "backend/gpu/gpu_device.h"
#include "base/env.h"
#include "base/machine_memory.h"
#include "base/philox.h"
#include "base/quantity.h"
#include "base/team.h"
#include "compile/run/compile_run.h"
#include "format/json.h"
#include "model/families.h"
#include "plan/planner.h"
#include "program/buffer_names.h"
#include "run/machine_limits.h"
#include "run/processor.h"
#include "runtime/executor.h"
#include "tensor/quantise_for_test.h"
#include "train/trainer.h"

namespace temper {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kRow = 2048;

template <class T>
T Must(Result<T> result) {
  TEMPER_CHECK(result.ok()) << result.status().message();
  return std::move(*result);
}
void Must(const Status& status) {
  TEMPER_CHECK(status.ok()) << status.message();
}

struct Case {
  std::string config;
  bool lora = true;
  BaseType base = BaseType::kAuto;
  int64_t rows = 1, micro_batches = 1;
  bool recompute = false, fit = false;
  int steps = 8;
  bool graphs = true;
  std::optional<Bytes> limit;
};

constexpr char kCluster[] = "1xH200";

BaseType BaseNamed(std::string_view method) {
  return method == "int8" ? BaseType::kInt8 : method == "nf4" ? BaseType::kNf4 : BaseType::kAuto;
}

std::string MethodOf(const Case& c) {
  const auto format = FormatOf(c.base);
  return c.lora ? "LoRA r=16" + (format ? fmt::format(" on {}", ToString(*format)) : "") : "full";
}

RunConfig ConfigOf(const Case& c) {
  RunConfig config;
  config.model.method = c.lora ? TrainMethod::kLora : TrainMethod::kFull;
  config.model.dtype = ComputeType::kBf16;
  config.model.base_dtype = c.base;
  config.lora.r = 16;
  config.lora.target_modules = std::string("all-linear");
  config.data.max_seq_len = kRow;
  config.batch.per_device_train_batch_size = c.rows;
  config.batch.gradient_accumulation_steps = c.micro_batches;
  config.machine.device = DeviceChoice::kGpu;
  config.machine.threads = 1;
  config.machine.recompute = c.recompute ? Recompute::kBlock : Recompute::kNone;
  config.memory.device = c.limit;
  // Files cannot use pinned memory: a quarter is left for them.
  if (c.limit) config.memory.host = FindAvailableMemory().bytes / 4 * 3;
  return config;
}

// The host's memory beside the device's, if the Program uses any there.
struct HostMemory {
  std::unique_ptr<Arena> arena;
  std::unique_ptr<KernelTable> kernels;
  int threads = AvailableProcessors();

  HostMemory(const Program& program, Device& device) {
    if (program.host.bytes.v == 0) return;
    arena = Must(Arena::Create(program.host.bytes));
    Must(arena->PinFor(device));
    kernels = MakeCpuKernels({.threads = threads});
  }
  FarTiers tiers() const { return {.host = arena.get(), .host_kernels = kernels.get(), .host_threads = threads}; }
};

// Repeats random numbers of a piece of an odd length, because 8 billion are needed.
template <class T>
class Drawn {
 public:
  explicit Drawn(const std::vector<float>& piece) {
    for (const float x : piece) piece_.push_back(FromFloat<T>(x));
  }
  void Fill(std::span<T> x) {
    while (!x.empty()) {
      const size_t n = std::min(x.size(), piece_.size() - next_);
      std::copy_n(piece_.begin() + static_cast<std::ptrdiff_t>(next_), n, x.begin());
      next_ = (next_ + n) % piece_.size();
      x = x.subspan(n);
    }
  }

 private:
  std::vector<T> piece_;
  size_t next_ = 0;
};

// Rows of a quantised matrix: as many as there are numbers for, repeated.
class QuantisedRows {
 public:
  explicit QuantisedRows(std::span<const float> numbers) : numbers_(numbers) {}
  void Fill(const View& matrix) {
    const int64_t columns = matrix.type.shape[1];
    std::vector<std::byte>& rows = by_columns_[columns];
    if (rows.empty()) {
      const Shape some = {std::ssize(numbers_) / columns, columns};
      const auto first = numbers_.first(static_cast<size_t>(some.elements()));
      rows = Quantised(matrix.type.dtype, first, some, {0, 0}, some);
    }
    for (std::span<std::byte> x = matrix.raw(); !x.empty();) {
      const size_t n = std::min(x.size(), rows.size());
      std::copy_n(rows.begin(), n, x.begin());
      x = x.subspan(n);
    }
  }

 private:
  const std::span<const float> numbers_;
  std::map<int64_t, std::vector<std::byte>> by_columns_;  // all weights are of one format
};

// Weights of a freshly initialised model: norms 1, all others N(0, 0.02^2).
void FillWeights(const Executor& executor) {
  std::vector<float> piece(1000003);
  for (size_t i = 0; i < piece.size(); ++i) piece[i] = 0.02f * NormalAt({.seed = 1}, i);
  std::tuple<Drawn<float>, Drawn<bf16>> drawn{piece, piece};
  QuantisedRows quantised(piece);
  HostWindow window;
  for (size_t b = 0; b < executor.program().buffers.size(); ++b) {
    const Buffer& buffer = executor.program().buffers[b];
    const bool weight =
        buffer.role == Role::kWeight || buffer.role == Role::kAdapter || buffer.name.starts_with(MasterName(""));
    if (!weight) continue;
    const bool norm = buffer.name.find("norm") != std::string::npos;
    Must(window.Fill(executor.BufferPart(static_cast<int>(b)), [&](const PartView& part) {
      if (part.view.type.dtype.quantised()) {
        quantised.Fill(part.view);
        return OkStatus();
      }
      DispatchFloat(part.view.type.dtype, [&]<class T>() {
        const std::span<T> x = part.view.as<T>();
        if (norm) {
          std::fill(x.begin(), x.end(), FromFloat<T>(1.0f));
        } else {
          std::get<Drawn<T>>(drawn).Fill(x);
        }
      });
      return OkStatus();
    }));
  }
}

// Random tokens, every one supervised.
void FillBatches(int64_t vocab, HostBatches* batches) {
  for (int64_t m = 0; m < batches->micro_batches(); ++m) {
    for (const ColumnArray& column : batches->columns(m)) {
      const std::string_view name = column.filler->column.name;
      if (column.filler->column.dtype != DType::kI32) continue;
      auto* const values = reinterpret_cast<int32_t*>(column.values.data());
      for (int64_t t = 0; t < batches->tokens_per_micro_batch(); ++t) {
        const auto draw = [&](uint64_t seed) {
          return static_cast<int32_t>(
              UniformAt({.seed = seed, .step = static_cast<uint64_t>(m)}, static_cast<uint64_t>(t)) *
              static_cast<float>(vocab - 1));
        };
        values[t] = name == kTokenInput           ? draw(2)
                    : name == kTargetInput        ? draw(3)
                    : name == kPositionInput      ? static_cast<int32_t>(t % kRow)
                    : name == kDocumentStartInput ? static_cast<int32_t>(t / kRow * kRow)
                                                  : static_cast<int32_t>(kRow);
      }
    }
  }
}

// Ways to run `c`, the preferred first: the most rows with nothing recomputed; then with blocks recomputed.
std::vector<Case> WaysToRun(Case c) {
  if (!c.fit) return {c};
  std::vector<Case> ways;
  const int64_t most = c.rows;
  for (const bool recompute : {false, true}) {
    c.recompute = recompute;
    for (c.rows = most; c.rows >= (recompute ? 1 : (most + 3) / 4); c.rows /= 2) ways.push_back(c);
  }
  return ways;
}

int Main(Case c) {
  auto opened = OpenGpu(0);
  if (!opened.ok()) {
    fmt::print(stderr, "{}\n", opened.status().message());
    return 1;
  }
  Device& device = **opened;
  const auto model = Must(ModelFromConfig(Must(ReadJsonFile(PosixEnv(), c.config)), c.config));
  std::optional<PlannedRun> planned;
  std::string forecast;
  if (c.limit) {
    const Cluster cluster = Must(OpenCluster(PosixEnv(), kCluster));
    planned = Must(Planner(*model, cluster).Plan(ConfigOf(c), 1));
    forecast = fmt::format(", {} at the host, forecast {:.0f} tokens/s on {}",
                           ToString(planned->run.train().host.bytes), planned->forecast.tokens_per_second, kCluster);
  }
  const double peak = Must(MeasureProductPeak(device, DType::kBF16));  // first: what it loads is not free for a step
  std::optional<CompiledRun> compiled;
  if (planned) {
    compiled = std::move(planned->run);
  } else {
    const Bytes free = Must(device.MeasureMemory()).free;
    for (const Case& way : WaysToRun(c)) {
      c = way;
      compiled = Must(CompileRun(*model, ConfigOf(c)));
      if (!c.fit || compiled->train().arena_bytes <= RoomOnGpu(compiled->train(), free)) break;
      fmt::print(stderr, "{} rows{} would take {} of {} free\n", c.rows, c.recompute ? ", recompute" : "",
                 ToString(compiled->train().arena_bytes), ToString(free));
      compiled.reset();
    }
    if (!compiled) {
      fmt::print("{} {}: left out, too large for a card with {} free\n", c.config.substr(c.config.rfind('/') + 1),
                 MethodOf(c), ToString(free));
      return 0;
    }
  }
  const CompiledRun& run = *compiled;
  const auto arena = Must(Arena::On(device, run.train().arena_bytes));
  const HostMemory host(run.train(), device);
  const auto executor = Must(Executor::Create(run.train(), *arena, device.kernels(), nullptr, host.tiers()));
  executor->set_replays(c.graphs);
  ProductChoices products;
  const auto timed = Must(device.ChooseProducts({arena->At({}), static_cast<size_t>(arena->size().v)}, &products));
  Must(executor->FillConstants());
  if (timed.algorithms > 0) {
    fmt::print(stderr, "timed {} for {}\n", Counted(timed.algorithms, "algorithm"), Counted(timed.products, "product"));
  }
  FillWeights(*executor);
  HostBatches batches(*executor, c.micro_batches, Sft().reports);
  FillBatches(model->facts().vocab, &batches);
  const int scalars = run.train().FindBuffer(kScalarsBuffer);
  const int64_t tokens = c.rows * c.micro_batches * kRow;
  std::vector<double> seconds;
  double loss = 0;
  for (int step = 0; step < c.steps + 2; ++step) {
    const auto begin = Clock::now();
    double values[kNumScalars];
    values[kScalarLearningRate] = 1e-4;
    values[kScalarBiasCorrection1] = 0.1;
    values[kScalarBiasCorrection2] = 0.001;
    values[kScalarTokenCount] = static_cast<double>(tokens);
    Must(executor->Write(scalars, std::as_bytes(std::span(values))));
    Must(executor->Run(batches.io()));
    if (step >= 2) seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());  // loads, records
    loss = 0;
    for (const float x : batches.report(0)) loss += x;
  }
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  const Flops attention{run.AttentionFlops(kRow).v * static_cast<double>(tokens) / static_cast<double>(kRow)};
  const double mfu = run.ModelFlops(tokens, attention).v / median / peak;
  const Bytes in_use = run.train().arena_bytes + Must(device.MeasureMemory()).beside;
  fmt::print(
      "{} {}, {} x {} rows of {}{}{}: {:.0f} tokens/s, MFU {:.1f} % of {:.0f} TFLOP/s, step {:.1f} ms ({:.1f} to "
      "{:.1f}), "
      "arena {}, in use on the card {}{}, loss {:.3f}\n",
      c.config.substr(c.config.rfind('/') + 1), MethodOf(c), c.micro_batches, c.rows, kRow,
      c.recompute ? ", recompute" : "", c.graphs ? "" : ", no graphs", static_cast<double>(tokens) / median, 100 * mfu,
      peak * 1e-12, median * 1e3, seconds.front() * 1e3, seconds.back() * 1e3, ToString(run.train().arena_bytes),
      ToString(in_use), forecast, loss / static_cast<double>(tokens));
  // The time of wrong results means nothing: random weights start near the logarithm of the words, and only improve.
  const double begins = std::log(static_cast<double>(model->facts().vocab));
  if (loss > 0 && loss < 1.2 * begins * static_cast<double>(tokens)) return 0;
  fmt::print(stderr, "gpu_step: the loss of a token is {:.3f}; untrained it would be {:.3f}\n",
             loss / static_cast<double>(tokens), begins);
  return 1;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  const std::string_view method = argc > 2 ? argv[2] : "";
  if (argc < 5 || !(method == "lora" || method == "int8" || method == "nf4" || method == "full")) {
    std::fputs(
        "usage: gpu_step CONFIG.json lora|int8|nf4|full ROWS MICRO_BATCHES [fit|none|block] [STEPS] [graphs|plain] "
        "[LIMIT]\n",
        stderr);
    return 2;
  }
  temper::Case c{.config = argv[1],
                 .lora = method != "full",
                 .base = temper::BaseNamed(argv[2]),
                 .rows = std::atol(argv[3]),
                 .micro_batches = std::atol(argv[4])};
  if (argc > 5) c.recompute = std::string_view(argv[5]) == "block";
  if (argc > 5) c.fit = std::string_view(argv[5]) == "fit";
  if (argc > 6) c.steps = std::max(1, std::atoi(argv[6]));
  if (argc > 7) c.graphs = std::string_view(argv[7]) != "plain";
  if (argc > 8) c.limit = {static_cast<int64_t>(temper::Must(temper::ParseQuantity(argv[8], "B")))};
  return temper::Main(std::move(c));
}
