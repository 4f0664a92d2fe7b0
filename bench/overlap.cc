// Does a step hide what goes over slow links behind what it computes? A delay is added to every collective, in
// proportion to what a rank sends by it, and nothing of a processor is used meanwhile: a link of that speed between any
// two ranks.
//   bench/overlap [--ranks 2] [--threads 1] [--mesh fsdp|tp|fsdp_tp] [--steps 5]
// For delays of half a step to two steps: the step's time beside the time of computing alone and the sum of delays. The
// limit is the larger of the two; target: within 10 % of it for fsdp.
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "bench/ranks.h"
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
};

// Seconds per byte, and what all collectives of this rank have been delayed by.
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
  MeshSpec spec{.rank = rank};
  const bool both = options.mesh == "fsdp_tp";
  TEMPER_CHECK(both || options.mesh == "fsdp" || options.mesh == "tp") << "--mesh " << options.mesh;
  if (options.mesh != "tp") spec.mesh.set_size(Axis::kFsdp, both ? options.ranks / 2 : options.ranks);
  if (options.mesh != "fsdp") spec.mesh.set_size(Axis::kTp, both ? 2 : options.ranks);
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
  const auto sent = static_cast<double>(CostOfStep(step->train()).sent.v);
  if (communicator.rank() == 0) {
    fmt::print("{} ranks of {} threads, mesh {}; without delays {:.0f} ms a step\n", options.ranks, options.threads,
               mesh.mesh.ToString(), computing * 1e3);
    std::fflush(stdout);
  }
  for (const double ratio : {0.25, 0.5, 1.0, 2.0}) {
    delay.per_byte = ratio * computing / sent;
    const auto [seconds, delayed] = Measure(step.get(), &communicator, &delay, options.steps);
    const double without_overlap = Measure(in_line.get(), &communicator, &delay, options.steps).first;
    if (communicator.rank() != 0) continue;
    const double limit = std::max(computing, delayed);
    fmt::print("delays of {:6.0f} ms: {:6.0f} ms a step, {:4.2f} x the larger; {:6.0f} ms without overlap\n",
               delayed * 1e3, seconds * 1e3, seconds / limit, without_overlap * 1e3);
    std::fflush(stdout);
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
  }
  return bench::OnRanks(options.ranks, [&](Communicator& communicator) { RunRank(communicator, options); });
}
