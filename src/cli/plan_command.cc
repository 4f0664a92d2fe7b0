// temper plan: compiles the same Program as train, and reports on it. Reads config.json, but no weights.
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <thread>

#include "api/plan_data.h"
#include "api/train_setup.h"
#include "base/log.h"
#include "base/machine_memory.h"
#include "base/progress_text.h"
#include "base/quantity.h"
#include "base/team.h"
#include "checkpoint/companion_files.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/run_line.h"
#include "compile/mesh/verify_agreement.h"
#include "compile/pipeline/balance.h"
#include "compile/run/compiled_run.h"
#include "compile/run/mesh_options.h"
#include "config/run_options.h"
#include "format/quoted.h"
#include "plan/cluster_rates.h"
#include "plan/measured_step.h"
#include "plan/page.h"
#include "plan/plan_search.h"
#include "plan/planner.h"
#include "plan/report.h"
#include "plan/sharding_table.h"
#include "run/calibration.h"
#include "run/far_memory.h"
#include "run/machine.h"
#include "run/processor.h"
#include "run/rates_of_run.h"
#include "run/scalar_kernels.h"

namespace temper {
namespace {

constexpr char kPlanUsage[] =
    "usage: temper plan [RUN.yaml] --model FOLDER|NAME [--option value ...]\n\n"
    "Compiles the training step that `temper train` with the same options would run, and prints its memory by class\n"
    "at its peak, its arithmetic and its segments. With --cluster also its speed there, what limits it, and\n"
    "what would make it fit. Needs only config.json, and not even that for well-known models, which --model names.\n"
    "Where weights are there, it looks at their headers, too.\n";

// The memory that a rank would have on this machine for its arenas;
// 0 if they are on a GPU, or if not all ranks are known to run here.
Bytes AvailableFor(const CompiledRun& run, const RunConfig& c) {
  const int ranks = run.mesh.mesh.ranks();
  if (c.machine.device == DeviceChoice::kGpu) return Bytes{};
  return ranks > 1 && ranks != c.machine.nprocs ? Bytes{} : ShareOf(FindAvailableMemory(), ranks).bytes;
}

Result<PlanFacts> PlanFactsOf(const TrainSetup& setup, const CompiledRun& run, const std::optional<RowFill>& fill,
                              const std::optional<RunData>& data) {
  const RunConfig& c = setup.run.config;
  PlanFacts facts{.model = c.model.model,
                  .architecture = setup.model.model().facts().architecture,
                  .method = run.targets.empty() ? "full" : "lora",
                  .dtype = std::string(ToString(ComputeDType(c))),
                  .recompute = run.memory.choice.ToString(),
                  .parameters = run.parameters,
                  .trainable_parameters = run.trainable_parameters,
                  .hash_without_limits = run.hash_without_limits,
                  .rows = c.batch.per_device_train_batch_size,
                  .row_tokens = *c.data.max_seq_len,
                  .micro_batches = c.batch.gradient_accumulation_steps,
                  .tiers = run.MemoryText(),
                  .options = run.memory.options,
                  .rates = run.rates,
                  .mesh = run.mesh.mesh.ranks() > 1 ? run.mesh.mesh.ToString() : "",
                  .mesh_note = run.mesh_note,
                  .ranks = run.mesh.mesh.ranks(),
                  .data_ranks = run.data_ranks(),
                  .pipeline = run.pipeline,
                  .distinct = run.distinct,
                  .decisions = run.decisions,
                  .transfer_buffers = TransferBuffers(run.train()),
                  .available = AvailableFor(run, c),
                  .fill = fill};
  const StepFacts step = StepFactsOf(run, c, fill.value_or(RowFill()));
  facts.tokens = step.tokens;
  facts.model_flops = step.model_flops;
  const int64_t rows = facts.rows * facts.micro_batches * facts.data_ranks;
  TEMPER_ASSIGN_OR_RETURN(facts.length, LengthOf(c, data, rows, facts.tokens));
  return facts;
}

// Prints the drawing and the memory that a step of every rank reserves.
Result<int> PrintSharding(const TrainSetup& setup, const CompiledRun& run) {
  const RunConfig& config = setup.run.config;
  const Model& model = setup.model.model();
  TEMPER_ASSIGN_OR_RETURN(const Graph forward, AdaptedForward(model, config));
  const MeshSpec& mesh = run.mesh;
  TEMPER_ASSIGN_OR_RETURN(const ShardedWeights sharded, ShardWeights(forward, mesh.mesh, mesh.rules, mesh.residual));
  const bool rich = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  const PipelineSpec& pipeline = run.mesh.pipeline;
  PipelineCut cut{.stages = run.mesh.mesh.size(Axis::kPp), .chunks_per_stage = pipeline.chunks_per_stage};
  TEMPER_ASSIGN_OR_RETURN(cut.chunk_of_block, ChunkOfBlocks(CostsOfBlocks(forward), cut.chunks(), pipeline.layers));
  std::string text = DrawSharding(forward, {mesh.mesh, mesh.rules, mesh.residual}, sharded,
                                  StagesOfWeights(forward, cut), {.colours = rich, .boxes = rich && LocaleIsUtf8()});
  if (!run.mesh_note.empty()) text += run.mesh_note + "\n";
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);  // compiling for hundreds of ranks takes minutes
  text = "\nreserved for a step (weights, gradients, optimizer states, activations)\n";
  const int ranks = run.mesh.mesh.ranks();
  std::vector<Program> programs;
  for (int rank = 0; rank < ranks; ++rank) {
    TEMPER_ASSIGN_OR_RETURN(CompiledRun one, CompileRun(model, config, ranks, rank));
    text += fmt::format("  rank {:<4} {}\n", rank, ToString(one.train().arena_bytes));
    programs.push_back(one.train());
  }
  std::vector<const Program*> of_ranks;
  of_ranks.reserve(programs.size());
  for (const Program& program : programs) of_ranks.push_back(&program);
  TEMPER_RETURN_IF_ERROR(VerifyAgreement(run.mesh.mesh, of_ranks));
  text += "checked: the collectives of all ranks match\n";
  std::fputs(text.c_str(), stdout);
  return 0;
}

// The options of the command besides those of a run.
struct PlanOptions {
  bool json = false, program = false, sharding = false, read_data = false;
  std::string cluster, trace, html, measured, search;
  std::optional<double> price;

  OptionGroup Group() {
    return {"Report",
            {{.name = "cluster",
              .target = &cluster,
              .help = "plan for these machines: a preset (8xH100, 8xMI300X, ...), a file, or 'this', measured "
                      "when first needed",
              .value_hint = "NAME"},
             {.name = "price", .target = &price, .help = "price of a device per hour", .range = {.above = 0}},
             {.name = "trace",
              .target = &trace,
              .help = "write the simulated step as a Chrome trace, in the format of --profile",
              .value_hint = "FILE"},
             {.name = "html",
              .target = &html,
              .help = "write the plan as one self-contained page: memory over time, queues, sharding",
              .value_hint = "FILE"},
             {.name = "measured",
              .target = &measured,
              .help = "with html: show the median step of this trace (trace.json of --profile) beside the plan",
              .value_hint = "FILE"},
             {.name = "search",
              .target = &search,
              .help = "find the best mesh, micro-batch and recompute: throughput or fewest_devices",
              .value_hint = "GOAL"},
             {.name = "read_data",
              .target = &read_data,
              .help = "read the run's data: estimate attention from the lengths of its documents, not of rows"},
             {.name = "json", .target = &json, .help = "print the report as JSON"},
             {.name = "program", .target = &program, .help = "print the compiled Program itself"},
             {.name = "sharding",
              .target = &sharding,
              .help = "draw which parts of each weight every rank of the mesh holds"}}};
  }
};

// The named cluster; without a name this machine's calibration. `measure`: if there is none yet, calibrate.
Result<std::optional<Cluster>> ClusterOf(const PlanOptions& options, bool measure) {
  if (!options.cluster.empty() && options.cluster != "this") {
    TEMPER_ASSIGN_OR_RETURN(Cluster cluster, OpenClusterOrThis(PosixEnv(), options.cluster));
    return std::optional<Cluster>(std::move(cluster));
  }
  Result<Cluster> measured = OpenClusterOrThis(PosixEnv(), "this");
  if (!measured.ok() && measure) {
    LogInfo(fmt::format("measuring   this machine, once: about {}, longer beside other work",
                        ToString(CalibrationTakes())));
    TEMPER_RETURN_IF_ERROR(CalibrateAndSave(PosixEnv()).status());
    measured = OpenClusterOrThis(PosixEnv(), "this");
  }
  if (!measured.ok() && !options.cluster.empty()) return measured.status();
  return measured.ok() ? std::optional<Cluster>(std::move(*measured)) : std::nullopt;
}

// The facts for resolving a run: those of the cluster's devices instead of this machine's.
Result<RunFacts> FactsOn(const std::optional<Cluster>& cluster, DeviceChoice device) {
  if (!cluster || cluster->shared) return MachineFacts(device);
  TEMPER_ASSIGN_OR_RETURN(RunFacts facts, MachineFacts(DeviceChoice::kCpu));
  facts.processor = cluster->device;
  facts.has_bf16 = cluster->has_bf16();
  facts.cpu_cores = 1;  // a device is one worker
  return facts;
}

Result<int> PrintSearch(const Planner& planner, const TrainSetup& setup, const PlanOptions& options) {
  SearchGoal goal = SearchGoal::kThroughput;
  if (options.search == "fewest_devices") {
    goal = SearchGoal::kFewestDevices;
  } else if (options.search != "throughput") {
    return InvalidArgument(
        fmt::format("search: {} is not a goal: choose throughput or fewest_devices", Quoted(options.search)));
  }
  TEMPER_ASSIGN_OR_RETURN(const SearchResult result, SearchPlans(planner, setup.run.config, goal));
  std::fputs((options.json ? SearchJson(result) : SearchText(result)).c_str(), stdout);
  return 0;
}

void Cut(const BatchCut& cut, TrainSetup* setup) {
  ApplyCut(cut, &setup->run.config);
  LogInfo("batch       " + cut.ToString());
}

// What `temper train` would have here.
struct ThisMachine {
  std::unique_ptr<Device> gpu;
  RankMemory memory;
  std::optional<RatesOfRun> rates;

  ThisMachine(const RunConfig& config, const Ranks& alone, int ranks)
      : memory(MemoryForPlan(config.machine.device, ranks, &gpu)) {
    // Rates of a GPU that is not here cannot be measured.
    const bool elsewhere = config.machine.device == DeviceChoice::kGpu && gpu == nullptr;
    rates.emplace(PosixEnv(), alone, elsewhere && !IsNamed(config.machine.rates) ? kTypicalRates : config.machine.rates,
                  RunOnMachine{.ranks = ranks,
                               .threads = static_cast<int>(*config.machine.threads),
                               .dtype = ComputeDType(config),
                               .gpu = gpu.get(),
                               .folder = config.memory.disk});
  }
  AskRates ask() {
    return [this](const Result<bool>& needed) { return rates->Ask(needed); };
  }
};

// As `temper train` would here.
Status CutHere(TrainSetup& setup, const Ranks& alone, int ranks) {
  ThisMachine here(setup.run.config, alone, ranks);
  const AskRates ask = here.ask();
  TEMPER_ASSIGN_OR_RETURN(const BatchCut cut,
                          ChooseBatchCut(setup.run.config, CutOnMachine(here.memory, setup.model.model(), ranks, ask)));
  Cut(cut, &setup);
  return OkStatus();
}
Result<CompiledRun> CompileHere(const TrainSetup& setup, const Ranks& alone, int ranks) {
  ThisMachine here(setup.run.config, alone, ranks);
  return CompileWithin(here.memory, setup.model.model(), setup.run.config, ranks, /*rank=*/0, {}, here.ask());
}

// The rates that `rates` names for a plan on `cluster`; nullopt: the cluster's own.
Result<std::optional<RunRates>> RatesOnCluster(const RunConfig& config, const Cluster& cluster) {
  const std::string& option = config.machine.rates;
  const int on_host = std::min(RanksOn(cluster, config), cluster.devices_per_host);
  if (option == kTypicalRates) return std::optional(RatesIn(MemorySpecOf(config)));
  if (!IsNamed(option)) return std::optional<RunRates>();
  TEMPER_ASSIGN_OR_RETURN(const Cluster named, OpenClusterOrThis(PosixEnv(), option));
  return std::optional(RatesOn(named, on_host));
}

// Explains a wait that is felt to a user at a terminal, unless the result is destroyed before.
std::jthread ExplainWaiting() {
  if (isatty(STDERR_FILENO) == 0) return {};
  return std::jthread([](const std::stop_token& done) {
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    never.wait_for(lock, done, std::chrono::milliseconds(300), [] { return false; });
    if (done.stop_requested()) return;
    LogInfo("plan        comparing tiers of values and recomputation; the largest models take seconds");
  });
}

// Says what `temper train` would find wrong with the headers of the model's weights, where they are there.
void CheckWeights(TrainSetup& setup) {
  const std::string& folder = setup.model.folder();
  const auto has = [&](const char* file) { return !folder.empty() && PosixEnv().IsFile(JoinPath(folder, file)); };
  if (!setup.reads_weights() || !(has("model.safetensors") || has("model.safetensors.index.json"))) return;
  if (const Status status = setup.model.OpenWeights(); !status.ok()) {
    LogWarning("the run would be refused because of its weights: " + status.message());
  }
}

// The first given option that needs the speed of a cluster; nullptr: none.
const char* NeedsCluster(const PlanOptions& o) {
  for (const auto& [name, given] : {std::pair{"search", !o.search.empty()}, std::pair{"html", !o.html.empty()},
                                    std::pair{"trace", !o.trace.empty()}, std::pair{"price", o.price.has_value()}}) {
    if (given) return name;
  }
  return nullptr;
}

// Whether this machine's calibration, of its CPU, holds for the run: a larger mesh, or a GPU, is planned without
// seconds.
bool IsForThisMachine(const RunConfig& config) {
  return config.machine.device != DeviceChoice::kGpu && RanksNamed(config) <= AvailableProcessors();
}

struct PlanSettings {
  RunConfig run;
  PlanOptions options;

  std::vector<OptionGroup> Groups() {
    std::vector<OptionGroup> groups = RunOptionGroups(run);
    groups.push_back(options.Group());
    return groups;
  }
};

Result<int> Plan(const Arguments& arguments) {
  PlanOptions options;
  std::optional<Cluster> cluster;
  const FactsOf facts_of = [&](const RunConfig& config) -> Result<RunFacts> {
    const bool wanted = options.cluster == "this" || NeedsCluster(options) != nullptr;
    TEMPER_ASSIGN_OR_RETURN(cluster, ClusterOf(options, wanted && IsForThisMachine(config)));
    if (cluster && options.price) cluster->price_per_device_hour = *options.price;
    return FactsOn(cluster, config.machine.device);
  };
  TEMPER_ASSIGN_OR_RETURN(auto request,
                          ReadRunLine(arguments, Purpose::kPlan, kPlanUsage, /*prints_help=*/true, {options.Group()}));
  if (!request) return 0;
  const Ranks alone;  // also if a launcher started several
  TEMPER_ASSIGN_OR_RETURN(TrainSetup set_up, SetUpTraining(*std::move(request), Purpose::kPlan, alone, facts_of));
  TrainSetup* const setup = &set_up;
  CheckWeights(*setup);
  const RunConfig& config = setup->run.config;
  const bool measured = options.cluster.empty() && cluster;
  const bool elsewhere = measured && cluster->shared && config.machine.device == DeviceChoice::kGpu;
  if (elsewhere || (measured && RanksOn(*cluster, config) > cluster->devices())) cluster.reset();
  if (const char* option = NeedsCluster(options); option != nullptr && !cluster) {
    return InvalidArgument(
        fmt::format("{} needs the speed of machines that can run this, and this one has fewer cores than ranks, or the "
                    "run is for a GPU: add --cluster (a preset, a file)",
                    option));
  }
  if (!options.measured.empty() && options.html.empty()) {
    return InvalidArgument("measured shows a trace beside the plan's page: add --html FILE");
  }
  std::optional<RowFill> fill;
  std::optional<RunData> data;
  if (options.read_data) {
    TEMPER_ASSIGN_OR_RETURN(data, ReadData(*setup));
    TEMPER_ASSIGN_OR_RETURN(fill, FillOf(config, *data));
  } else if (!options.sharding && !options.program && options.search.empty()) {
    data = SmallData(*setup);
  }
  std::jthread waiting = ExplainWaiting();
  std::optional<Planner> planner;
  if (cluster) {
    TEMPER_ASSIGN_OR_RETURN(std::optional<RunRates> rates, RatesOnCluster(config, *cluster));
    planner.emplace(setup->model.model(), *cluster, fill.value_or(RowFill()), std::move(rates));
    if (!options.search.empty() && !options.sharding && !options.program) return PrintSearch(*planner, *setup, options);
  }
  // Where ranks that this machine would start share its memory, the run is cut as `temper train` would cut it.
  const int ranks = cluster ? RanksOn(*cluster, config) : RanksNamed(config);
  const bool here = ranks == config.machine.nprocs && (!cluster || (cluster->shared && options.cluster.empty()));
  if (config.batch.auto_cut && here) {
    TEMPER_RETURN_IF_ERROR(CutHere(*setup, alone, ranks));
  } else if (config.batch.auto_cut && planner) {
    TEMPER_ASSIGN_OR_RETURN(const BatchCut cut, ChooseBatchCut(config, CutOnCluster(*planner, ranks)));
    Cut(cut, &*setup);
  } else if (config.batch.auto_cut) {
    LogInfo(fmt::format("batch       planned as {} of 1 row: add --cluster to see how the run would cut it",
                        Counted(config.batch.gradient_accumulation_steps, "micro-batch", "micro-batches")));
  }
  if (options.sharding || options.program || !cluster) {
    // A larger mesh, or one of a cluster's GPUs, is planned for unspecified machines.
    const bool as_here = !options.sharding && ranks == config.machine.nprocs && (!cluster || cluster->shared);
    TEMPER_ASSIGN_OR_RETURN(
        const CompiledRun run,
        as_here ? CompileHere(*setup, alone, ranks)
                : CompileRun(setup->model.model(), cluster ? OnDevicesOf(*cluster, config) : config, ranks));
    if (options.sharding) return PrintSharding(*setup, run);
    if (!cluster) WarnOfScalarKernels(run, config.machine.device);
    TEMPER_ASSIGN_OR_RETURN(const PlanFacts facts, PlanFactsOf(*setup, run, fill, data));
    std::fputs((options.program ? PrintProgram(run.train())
                : options.json  ? PlanJson(run.train(), facts)
                                : PlanText(run.train(), facts))
                   .c_str(),
               stdout);
    if (!run.room.ok()) {
      std::fflush(stdout);
      LogWarning("this machine would refuse the run: " + run.room.message());
    }
    if (as_here && !options.program && IsForThisMachine(config)) {
      std::fflush(stdout);
      LogInfo(fmt::format("speed       not known yet: add --cluster this, which measures this machine once (about {})",
                          ToString(CalibrationTakes())));
    }
    return 0;
  }
  TEMPER_ASSIGN_OR_RETURN(const PlannedRun planned,
                          planner->Plan(config, ranks,
                                        /*keep_events=*/!options.trace.empty() || !options.html.empty()));
  waiting = {};
  if (cluster->shared) WarnOfScalarKernels(planned.run, config.machine.device);
  PlanOnCluster on{.cluster = &*cluster, .forecast = &planned.forecast};
  if (!planned.forecast.fits) {
    LogInfo("plan        it does not fit: searching for settings that fit");
    TEMPER_ASSIGN_OR_RETURN(on.remedies, FindRemedies(*planner, config, planned));
  }
  on.faster = FindFasterBases(*planner, config, planned);
  if (!options.trace.empty()) {
    TEMPER_RETURN_IF_ERROR(WriteTextFileAtomically(PosixEnv(), options.trace, TraceText(planned.forecast.simulation)));
  }
  TEMPER_ASSIGN_OR_RETURN(const PlanFacts facts, PlanFactsOf(*setup, planned.run, fill, data));
  const Program& train = planned.run.train();
  if (!options.html.empty()) {
    std::vector<TraceRow> measured;
    if (!options.measured.empty()) {
      auto step = ReadMeasuredStep(PosixEnv(), options.measured);
      if (!step.ok()) return step.status().WithContext("--measured");
      measured = *std::move(step);
    }
    TEMPER_RETURN_IF_ERROR(WriteTextFileAtomically(PosixEnv(), options.html, PlanPage(train, facts, on, measured)));
  }
  std::fputs((options.json ? PlanJson(train, facts, on) : PlanText(train, facts, on)).c_str(), stdout);
  return 0;
}

}  // namespace

const Command kPlanCommand = {.name = "plan",
                              .summary = "memory and speed of a run, before it runs",
                              .usage = kPlanUsage,
                              .first_word = FirstWord::kYamlFile,
                              .words = "",
                              .run = Plan,
                              .read_options = ReadOptionsOf<PlanSettings>};

}  // namespace temper
