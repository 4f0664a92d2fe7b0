// How long does `temper plan` take where a model does not fit? Every well-known model x LoRA and full x small machines:
// processors whose memory is the only limit, and clusters of GPUs, the batch as given and cut as `temper plan` cuts it.
// Seconds of a processor, on one thread or several, the nodes that the search placed, and what was chosen, so that two
// versions can be compared; what takes longer than the goal is listed, and ends the program with 1. Measuring a
// machine's rates, about a second of its cores where a run needs them, is not part of it.
//
//   bench/plan_time [PART OF A MODEL'S NAME [PART OF A MACHINE'S]]
#include <fmt/core.h>

#include <ctime>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/env.h"
#include "cluster/cluster.h"
#include "compile/run/batch_cut.h"
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

// What was chosen, in a line.
std::string Chosen(const CompiledRun& run, Seconds step) {
  const Program& train = run.train();
  return fmt::format("{}, {} + {} + {}, {:.5g} s a step, {} nodes placed, program {}", run.memory.choice.ToString(),
                     ToString(train.arena_bytes), ToString(train.host.bytes), ToString(train.disk.bytes), step.v,
                     run.memory.work, ProgramHash(train));
}

Result<std::string> OnProcessor(Bytes memory, const Model& model, TrainMethod method) {
  TEMPER_ASSIGN_OR_RETURN(const CompiledRun run,
                          CompileWithin({.each = {memory}, .ranks_per_machine = 1}, model, ConfigFor(model, method)));
  const Seconds step = run.memory.stall + run.memory.compute;
  return fmt::format("{}: {}", run.limited_because.empty() ? "fits" : "in tiers", Chosen(run, step));
}

// `cuts`: as `temper plan` does where the batch is not given, and then looks at smaller formats of the base.
Result<std::string> OnCluster(const std::string& name, int ranks, bool cuts, const Model& model, TrainMethod method) {
  TEMPER_ASSIGN_OR_RETURN(Cluster cluster, OpenCluster(PosixEnv(), name));
  RunConfig config = ConfigFor(model, method);
  config.mesh.fsdp = ranks;
  const Planner planner(model, std::move(cluster));
  std::string text;
  std::map<int64_t, PlannedRun> plans;
  if (cuts) {
    config.batch.auto_cut = true;
    TEMPER_ASSIGN_OR_RETURN(const BatchCut cut, ChooseBatchCut(config, CutOnCluster(planner, config, ranks, &plans)));
    ApplyCut(cut, &config);
    text = fmt::format("{} of {}: ", cut.micro_batches, cut.rows);
  }
  PlannedRun planned;
  if (const auto at = plans.find(config.batch.per_device_train_batch_size); at != plans.end()) {
    planned = std::move(at->second);
  } else {
    TEMPER_ASSIGN_OR_RETURN(planned, planner.Plan(config, ranks));
  }
  const std::string chosen = Chosen(planned.run, planned.forecast.simulation.step);
  std::vector<Remedy> others;
  if (planned.forecast.fits) {
    text += planned.run.memory.text.empty() ? "fits" : "in tiers";
    if (cuts) others = FindFasterBases(planner, config, planned);
  } else {
    text += "does not fit";
    TEMPER_ASSIGN_OR_RETURN(others, FindRemedies(planner, config, planned));
  }
  text += ": " + chosen;
  for (const Remedy& r : others) {
    text += fmt::format("; {} {}{} + {}, {:.5g} s", r.settings, r.fits ? "fits " : "", ToString(r.bytes),
                        ToString(r.host_bytes), r.step.v);
  }
  return text;
}

int Main(const std::string& part, const std::string& part_of_machine) {
  std::vector<std::pair<std::string, Question>> machines;
  for (const int64_t gib : {4, 8, 16, 24, 64, 256}) {
    machines.emplace_back(fmt::format("{} GiB", gib), [gib](const Model& model, TrainMethod method) {
      return OnProcessor(GiB(gib), model, method);
    });
  }
  for (const auto& [name, ranks] : {std::pair{"RTX3090-24", 1}, {"1xH200", 1}, {"8xH100", 8}}) {
    for (const bool cuts : {false, true}) {
      machines.emplace_back(fmt::format("{} of {}{}", ranks, name, cuts ? ", cut" : ""),
                            [name, ranks, cuts](const Model& model, TrainMethod method) {
                              return OnCluster(name, ranks, cuts, model, method);
                            });
    }
  }
  int slow = 0, plans = 0;
  double most = 0, all = 0;
  for (const std::string& name : KnownModelNames()) {
    if (name.find(part) == std::string::npos) continue;
    const auto model = ModelFromConfig(*FindKnownModel(name), name);
    TEMPER_CHECK(model.ok()) << model.status().message();
    for (const TrainMethod method : {TrainMethod::kLora, TrainMethod::kFull}) {
      for (const auto& [machine, ask] : machines) {
        if (machine.find(part_of_machine) == std::string::npos) continue;
        const double begin = ProcessorSeconds();
        const Result<std::string> answer = ask(**model, method);
        const double seconds = ProcessorSeconds() - begin;
        ++plans;
        slow += seconds > kGoal ? 1 : 0;
        most = std::max(most, seconds);
        all += seconds;
        fmt::print("{:<20} {:<4} {:<20} {:>7.2f} s{} {}\n", name, method == TrainMethod::kLora ? "lora" : "full",
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
  return temper::bench::Main(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "");
}
