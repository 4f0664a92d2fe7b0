// What does the ring cost on long rows? One row of 8k to 32k tokens: on one rank with all threads, and dealt over cp
// with the same threads in all. The limit is the one rank's time.
//   bench/long_rows [--cp 2] [--threads 1] [--rows 8192,16384,32768] [--steps 3]
#include <fmt/core.h>

#include <cstdlib>
#include <sstream>

#include "bench/ranks.h"

namespace temper {
namespace {

using bench::Must;

// Wide rows of few layers: attention is most of it.
constexpr char kConfig[] = R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 2000, "hidden_size": 512,
  "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 1408,
  "max_position_embeddings": 65536})";

struct Options {
  int cp = 2, threads = 1, steps = 3;
  std::vector<int64_t> rows = {8192, 16384, 32768};
};

double TimeOf(const bench::StepOf& of, Communicator* communicator, KernelTable* collectives, int steps) {
  bench::ModelStep step(of, communicator, collectives);
  step.Run();
  return bench::MedianStep(&step, communicator, steps);
}

void RunRank(Communicator& communicator, const Options& options) {
  MeshSpec mesh{.rank = communicator.rank()};
  mesh.mesh.set_size(Axis::kCp, options.cp);
  const auto collectives = communicator.Collectives(mesh.mesh);
  for (const int64_t row : options.rows) {
    bench::StepOf of{
        .config = kConfig, .row = row, .threads = options.threads * options.cp, .recompute = Recompute::kBlock};
    double alone = communicator.rank() == 0 ? TimeOf(of, nullptr, nullptr, options.steps) : 0;
    Must(communicator.Barrier());
    of.threads = options.threads;
    of.mesh = mesh;
    double together = TimeOf(of, &communicator, collectives.get(), options.steps);
    Must(communicator.AllReduceMax({&together, 1}));
    if (communicator.rank() != 0) continue;
    fmt::print("rows of {:6}: {:8.2f} s on one rank of {} threads, {:8.2f} s on cp={} of {}: {:4.2f} x\n", row, alone,
               options.threads * options.cp, together, options.cp, options.threads, together / alone);
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  using namespace temper;
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--cp") options.cp = std::atoi(argv[i + 1]);
    if (flag == "--threads") options.threads = std::atoi(argv[i + 1]);
    if (flag == "--steps") options.steps = std::atoi(argv[i + 1]);
    if (flag != "--rows") continue;
    options.rows.clear();
    std::istringstream list(argv[i + 1]);
    for (std::string row; std::getline(list, row, ',');) options.rows.push_back(std::atoll(row.c_str()));
  }
  return bench::OnRanks(options.cp, [&](Communicator& communicator) { RunRank(communicator, options); });
}
