// Does a step hide communication over slow links behind computation? A delay
// is added to every collective, in proportion to the bytes that a rank sends,
// without using the processor: a link of that speed between any two ranks.
//   bench/overlap [--ranks 2] [--threads 1] [--mesh fsdp|tp|fsdp_tp|dp] [--gathered_blocks N] [--steps 5]
// For delays of a quarter of a step to two steps: the step's time over the larger of computing alone and the sum of
// delays. Target: 1.1 for fsdp. Beside it lower bounds for the same instructions (bench/step_bound.h), each as long as
// it takes without delays: in the step's order, in the best one with the step's memory, and in the best one where all
// weights may be gathered at any time.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>

#include "bench/ranks.h"
#include "bench/step_bound.h"
#include "graph/rule.h"

namespace temper {
namespace {

using bench::Must;

// 62 M parameters, 8 M of them outside of blocks.
constexpr char kConfig[] = R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 8000, "hidden_size": 512,
  "num_hidden_layers": 16, "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 1408,
  "max_position_embeddings": 2048})";

struct Options {
  int ranks = 2, threads = 1, steps = 5;
  std::string mesh = "fsdp";
  std::optional<int> gathered_blocks;
};

// Seconds per byte, and the total delay of this rank's collectives.
struct Delay {
  std::atomic<double> per_byte{0}, sum{0};
};

class DelayedKernel final : public Kernel {
 public:
  DelayedKernel(std::unique_ptr<Kernel> kernel, Bytes sent, Delay* delay)
      : kernel_(std::move(kernel)), sent_(sent), delay_(delay) {}
  Status Run(const KernelArgs& args) override {
    const double seconds = static_cast<double>(sent_.v) * delay_->per_byte.load();
    if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    double sum = delay_->sum.load();
    while (!delay_->sum.compare_exchange_weak(sum, sum + seconds)) continue;
    return kernel_->Run(args);
  }

 private:
  const std::unique_ptr<Kernel> kernel_;
  const Bytes sent_;
  Delay* const delay_;
};

class DelayedTable final : public KernelTable {
 public:
  DelayedTable(std::unique_ptr<KernelTable> table, Delay* delay) : table_(std::move(table)), delay_(delay) {}
  const std::string& name() const override { return table_->name(); }
  Result<std::unique_ptr<Kernel>> Make(const KernelSpec& spec) override {
    TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel, table_->Make(spec));
    const Bytes sent = RuleOf(spec.op).cost(spec.inputs, spec.outputs, spec.attributes).sent;
    return std::unique_ptr<Kernel>(new DelayedKernel(std::move(kernel), sent, delay_));
  }

 private:
  const std::unique_ptr<KernelTable> table_;
  Delay* const delay_;
};

MeshSpec MeshOf(const Options& options, int rank) {
  MeshSpec spec{.rank = rank, .gathered_blocks = options.gathered_blocks};
  const bool both = options.mesh == "fsdp_tp";
  if (both) {
    spec.mesh.set_size(Axis::kFsdp, options.ranks / 2);
    spec.mesh.set_size(Axis::kTp, 2);
    return spec;
  }
  const std::optional<Axis> axis = ParseAxis(options.mesh);
  TEMPER_CHECK(axis == Axis::kFsdp || axis == Axis::kTp || axis == Axis::kDp) << "--mesh " << options.mesh;
  spec.mesh.set_size(*axis, options.ranks);
  return spec;
}

// The median step, and the mean sum of delays per step, of the slowest rank.
std::pair<double, double> Measure(bench::ModelStep* step, Communicator* communicator, Delay* delay, int steps) {
  delay->sum = 0;
  const double median = bench::MedianStep(step, communicator, steps);
  double figures[] = {median, delay->sum.load() / steps};
  Must(communicator->AllReduceMax(figures));
  return {figures[0], figures[1]};
}

// The time of each instruction of a step without delays. Kernels share their cores with the copies of collectives;
// traces of single steps show one or the other, so kernels are stretched until the sum is the measured time.
std::vector<bench::Executed> TimeInstructions(bench::ModelStep* step, Communicator* communicator, int steps,
                                              double seconds) {
  std::vector<bench::Executed> all = bench::ExecutedBy(step->train());
  for (int i = 0; i < steps; ++i) {
    Trace trace(all.size());
    Must(communicator->Barrier());
    step->Run(&trace);
    bench::TakeShortest(trace, i == 0, &all);
  }
  double kernels = 0;
  for (const bench::Executed& e : all) kernels += e.background() ? 0 : e.seconds;
  const double missing = seconds - bench::SecondsInOrder(step->train(), all);
  for (bench::Executed& e : all) e.seconds *= e.background() ? 1 : 1 + missing / kernels;
  return all;
}

Bytes SentBy(const bench::Executed& e) {
  std::vector<TensorType> in, out;
  for (const int k : e.instruction->inputs) in.push_back(e.segment->operands[static_cast<size_t>(k)]);
  for (const int k : e.instruction->outputs) out.push_back(e.segment->operands[static_cast<size_t>(k)]);
  return RuleOf(e.instruction->op).cost(in, out, e.instruction->attributes).sent;
}

// "forward 38 %, backward 57 %, update 5 %"
std::string Shares(std::span<const bench::Executed> all, FunctionRef<double(const bench::Executed&)> part) {
  double sums[3] = {}, sum = 0;
  for (const bench::Executed& e : all) {
    sums[static_cast<size_t>(e.segment->phase)] += part(e);
    sum += part(e);
  }
  std::string text;
  for (const Phase phase : {Phase::kForward, Phase::kBackward, Phase::kUpdate}) {
    text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", ToString(phase),
                        100 * sums[static_cast<size_t>(phase)] / sum);
  }
  return text;
}

void RunRank(Communicator& communicator, const Options& options) {
  const MeshSpec mesh = MeshOf(options, communicator.rank());
  Delay delay;
  DelayedTable collectives(communicator.Collectives(mesh.mesh), &delay);
  const auto step_of = [&](bool overlap) {
    bench::StepOf of{
        .config = kConfig, .rows = 2 * mesh.mesh.size(DataAxes(mesh.mesh)), .threads = options.threads, .mesh = mesh};
    of.mesh.overlap = overlap;
    return std::make_unique<bench::ModelStep>(of, &communicator, &collectives);
  };
  const auto step = step_of(true), in_line = step_of(false);
  Measure(step.get(), &communicator, &delay, 2);
  const double computing = Measure(step.get(), &communicator, &delay, options.steps).first;
  const std::vector<bench::Executed> instructions =
      TimeInstructions(step.get(), &communicator, options.steps, computing);
  const auto sent = static_cast<double>(CostOfStep(step->train()).sent.v);
  const auto print = [&](const std::string& line) {
    if (communicator.rank() != 0) return;
    fmt::print("{}\n", line);
    std::fflush(stdout);
  };
  print(fmt::format("{} ranks of {} threads, mesh {}; without delays {:.0f} ms a step, {} planned", options.ranks,
                    options.threads, mesh.mesh.ToString(), computing * 1e3, ToString(step->train().arena_bytes)));
  print("of that " + Shares(instructions, [](const bench::Executed& e) { return e.background() ? 0 : e.seconds; }));
  print(fmt::format("of {:.0f} MB sent {}", sent / 1e6,
                    Shares(instructions, [](const bench::Executed& e) { return static_cast<double>(SentBy(e).v); })));
  print("                            x the larger: measured   its order   best   best with any memory   no overlap");
  for (const double ratio : {0.25, 0.5, 1.0, 2.0}) {
    delay.per_byte = ratio * computing / sent;
    const auto [seconds, delayed] = Measure(step.get(), &communicator, &delay, options.steps);
    const double without_overlap = Measure(in_line.get(), &communicator, &delay, options.steps).first;
    std::vector<bench::Executed> late = instructions;
    for (bench::Executed& e : late) e.seconds += static_cast<double>(SentBy(e).v) * delay.per_byte.load();
    const double larger = std::max(computing, delayed);
    print(fmt::format("delays {:6.0f} ms, step {:6.0f} ms {:18.2f} {:11.2f} {:6.2f} {:22.2f} {:12.2f}", delayed * 1e3,
                      seconds * 1e3, seconds / larger, bench::SecondsInOrder(step->train(), late) / larger,
                      bench::LeastSeconds::Of(late, false) / larger, bench::LeastSeconds::Of(late, true) / larger,
                      without_overlap / larger));
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  using namespace temper;
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--ranks") options.ranks = std::atoi(argv[i + 1]);
    if (flag == "--threads") options.threads = std::atoi(argv[i + 1]);
    if (flag == "--steps") options.steps = std::atoi(argv[i + 1]);
    if (flag == "--mesh") options.mesh = argv[i + 1];
    if (flag == "--gathered_blocks") options.gathered_blocks = std::atoi(argv[i + 1]);
  }
  return bench::OnRanks(options.ranks, [&](Communicator& communicator) { RunRank(communicator, options); });
}
