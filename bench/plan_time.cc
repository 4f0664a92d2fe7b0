// How long does `temper plan` take where a model does not fit? Every well-known model x LoRA and full x small machines:
// processors whose memory is the only limit, and clusters of GPUs. Seconds of a processor, on one thread or several;
// what takes longer than the goal is listed, and ends the program with 1. Measuring a machine's rates, about a second
// of its cores where a run needs them, is not part of it.
//
//   bench/plan_time [PART OF A MODEL'S NAME]
#include <fmt/core.h>

#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/env.h"
#include "cluster/cluster.h"
#include "compile/run/compile_run.h"
#include "model/families.h"
#include "model/known_models.h"
#include "plan/planner.h"
#include "plan/remedies.h"
#include "settings/run_config.h"

namespace temper::bench {
namespace {

constexpr double kGoal = 2;  // seconds of a processor, for any of them

double ProcessorSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// What a plan said: that it fits, that it does not, or why there is none.
using Question = std::function<Result<std::string>(const Model&, TrainMethod)>;

RunConfig ConfigFor(const Model& model, TrainMethod method) {
  RunConfig config;
  config.model.model = "config.json";
  config.model.method = method;
  const RunFacts facts{.has_bf16 = true,
                       .cpu_cores = 2,
                       .today = "2026-01-01",
                       .model_max_seq_len = model.facts().max_positions,
                       .positions_are_learned = model.facts().positions_are_learned};
  Result<ResolvedRun> run = Resolve(config, facts);
  TEMPER_CHECK(run.ok()) << run.status().message();
  return std::move(run->config);
}

Result<std::string> OnProcessor(Bytes memory, const Model& model, TrainMethod method) {
  TEMPER_ASSIGN_OR_RETURN(const CompiledRun run,
                          CompileWithin({.each = {memory}, .ranks_per_machine = 1}, model, ConfigFor(model, method)));
  return std::string(run.limited_because.empty() ? "fits" : "in tiers");
}

Result<std::string> OnCluster(const std::string& name, int ranks, const Model& model, TrainMethod method) {
  TEMPER_ASSIGN_OR_RETURN(Cluster cluster, OpenCluster(PosixEnv(), name));
  RunConfig config = ConfigFor(model, method);
  config.mesh.fsdp = ranks;
  const Planner planner(model, std::move(cluster));
  TEMPER_ASSIGN_OR_RETURN(const PlannedRun planned, planner.Plan(config, ranks));
  if (planned.forecast.fits) return std::string(planned.run.memory.text.empty() ? "fits" : "in tiers");
  TEMPER_ASSIGN_OR_RETURN(const auto remedies, FindRemedies(planner, config, planned));
  return fmt::format("does not fit, {} remedies", remedies.size());
}

int Main(const std::string& part) {
  std::vector<std::pair<std::string, Question>> machines;
  for (const int64_t gib : {4, 8, 16, 24, 64, 256}) {
    machines.emplace_back(fmt::format("{} GiB", gib), [gib](const Model& model, TrainMethod method) {
      return OnProcessor(GiB(gib), model, method);
    });
  }
  for (const auto& [name, ranks] : {std::pair{"RTX3090-24", 1}, {"1xH200", 1}, {"8xH100", 8}}) {
    machines.emplace_back(fmt::format("{} of {}", ranks, name), [name, ranks](const Model& model, TrainMethod method) {
      return OnCluster(name, ranks, model, method);
    });
  }
  int slow = 0, plans = 0;
  double most = 0, all = 0;
  for (const std::string& name : KnownModelNames()) {
    if (name.find(part) == std::string::npos) continue;
    const auto model = ModelFromConfig(*FindKnownModel(name), name);
    TEMPER_CHECK(model.ok()) << model.status().message();
    for (const TrainMethod method : {TrainMethod::kLora, TrainMethod::kFull}) {
      for (const auto& [machine, ask] : machines) {
        const double begin = ProcessorSeconds();
        const Result<std::string> answer = ask(**model, method);
        const double seconds = ProcessorSeconds() - begin;
        ++plans;
        slow += seconds > kGoal ? 1 : 0;
        most = std::max(most, seconds);
        all += seconds;
        fmt::print("{:<20} {:<4} {:<16} {:>7.2f} s{} {}\n", name, method == TrainMethod::kLora ? "lora" : "full",
                   machine, seconds, seconds > kGoal ? " SLOW" : "", answer.ok() ? *answer : answer.status().message());
        std::fflush(stdout);
      }
    }
  }
  fmt::print("{} plans: {:.2f} s on average, {:.2f} at most; {} took more than {} s\n", plans, all / plans, most, slow,
             kGoal);
  return slow == 0 ? 0 : 1;
}

}  // namespace
}  // namespace temper::bench

int main(int argc, char** argv) {
  return temper::bench::Main(argc > 1 ? argv[1] : "");
}
