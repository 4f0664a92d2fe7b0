#include "api/plan_run.h"

#include <fmt/core.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <stop_token>
#include <thread>

#include "api/plan_data.h"
#include "base/log.h"
#include "base/machine_memory.h"
#include "base/quantity.h"
#include "base/thread.h"
#include "compile/mesh/verify_agreement.h"
#include "compile/pipeline/balance.h"
#include "compile/run/compile_run.h"
#include "compile/run/mesh_options.h"
#include "compile/run/run_frame.h"
#include "format/model_weights.h"
#include "format/quoted.h"
#include "plan/measured_step.h"
#include "plan/page.h"
#include "plan/plan_search.h"
#include "plan/planner.h"
#include "plan/remedies.h"
#include "plan/report.h"
#include "plan/sharding_table.h"
#include "run/calibration.h"
#include "run/far_memory.h"
#include "run/machine.h"
#include "run/rates_of_run.h"
#include "run/scalar_kernels.h"
#include "run/teacher_model.h"

namespace temper {
namespace {

// The memory that a rank would have on this machine for its arenas;
// 0 if they are on a GPU, or if not all ranks are known to run here.
Bytes AvailableFor(const CompiledRun& run, const RunConfig& c) {
  const int ranks = run.mesh.mesh.ranks();
  if (c.machine.device == DeviceChoice::kGpu) return Bytes{};
  return ranks > 1 && ranks != c.machine.nprocs ? Bytes{} : ShareOf(FindAvailableMemory(), ranks).bytes;
}

// The run, the machines that it is planned for, and what is known of its data.
struct Planning {
  const PlanOptions& options;
  TrainSetup setup;
  std::optional<Cluster> cluster;
  std::optional<RowFill> fill;
  std::optional<RunData> data;
  std::vector<std::string> refusals;  // PlanFacts
  std::optional<Planner> planner;     // with a cluster
  std::map<int64_t, PlannedRun> cut;  // the plans made for the cut of the batch, by rows of a micro-batch
  int ranks = 1;

  const RunConfig& config() const { return setup.run.config; }
};

// What `temper train` would say of the run's length, once it is known.
void NoteLength(const RunConfig& config, const RunLength& length, std::vector<std::string>* refusals) {
  if (const Status steps = CheckSteps(config, length.steps); !steps.ok()) {
    refusals->push_back("because of its length: " + steps.message());
    return;
  }
  for (const std::string& warning : StepWarnings(config, length.steps, length.packed)) LogWarning(warning);
}

Result<PlanFacts> PlanFactsOf(const Planning& plan, const CompiledRun& run) {
  const TrainSetup& setup = plan.setup;
  const std::optional<RowFill>& fill = plan.fill;
  const RunConfig& c = setup.run.config;
  PlanFacts facts{.model = c.model.model,
                  .architecture = setup.model.model().facts().architecture,
                  .method = run.trains.all_weights ? "full" : "lora",
                  .dtype = std::string(ToString(ComputeDType(c))),
                  .recompute = run.memory.choice.ToString(),
                  .parameters = run.parameters,
                  .active_parameters = run.active_parameters,
                  .trainable_parameters = run.trainable_parameters,
                  .hashes_without_limits = run.hashes_without_limits,
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
                  .fill = fill,
                  .lengths = run.lengths};
  facts.teacher = TeacherText(setup.model, c.objective.teacher);
  const StepFacts step = StepFactsOf(run, c, fill.value_or(RowFill()));
  facts.tokens = step.tokens;
  facts.model_flops = step.model_flops;
  const int64_t rows = facts.rows * facts.micro_batches * facts.data_ranks;
  TEMPER_ASSIGN_OR_RETURN(facts.length, LengthOf(c, plan.data, rows, facts.tokens));
  facts.refusals = plan.refusals;
  if (facts.length) NoteLength(c, *facts.length, &facts.refusals);
  return facts;
}

// Where what is reported goes: to the caller at once, and into the result.
class Report {
 public:
  explicit Report(const PlanFace& face) : face_(face) {}
  void Write(const std::string& text) {
    if (face_.print) face_.print(text);
    result.text += text;
  }
  // The report is both; what is printed is one of them.
  void WriteEither(std::string text, std::string json, bool prints_json) {
    if (face_.print) face_.print(prints_json ? json : text);
    result.text += text;
    result.json = std::move(json);
  }
  const PlanFace& face() const { return face_; }

  PlanResult result;
  std::vector<std::string> refusals;  // PlanFacts

 private:
  const PlanFace& face_;
};

// The drawing, and the memory that a step of every rank reserves.
Status ReportSharding(const TrainSetup& setup, const CompiledRun& run, Report* report) {
  const RunConfig& config = setup.run.config;
  const Model& model = setup.model.model();
  TEMPER_ASSIGN_OR_RETURN(const Graph forward, AdaptedForward(model, config));
  const MeshSpec& mesh = run.mesh;
  TEMPER_ASSIGN_OR_RETURN(const ShardedWeights sharded, ShardWeights(forward, mesh.mesh, mesh.rules, mesh.residual));
  const PipelineSpec& pipeline = run.mesh.pipeline;
  PipelineCut cut{.stages = run.mesh.mesh.size(Axis::kPp), .chunks_per_stage = pipeline.chunks_per_stage};
  TEMPER_ASSIGN_OR_RETURN(cut.chunk_of_block, ChunkOfBlocks(CostsOfBlocks(forward), cut.chunks(), pipeline.layers));
  std::string text =
      DrawSharding(forward, {mesh.mesh, mesh.rules, mesh.residual}, sharded, StagesOfWeights(forward, cut),
                   {.colours = report->face().colours, .boxes = report->face().boxes});
  if (!run.mesh_note.empty()) text += run.mesh_note + "\n";
  report->Write(text);  // compiling for hundreds of ranks takes minutes
  text = "\nreserved for a step (weights, gradients, optimizer states, activations)\n";
  const int ranks = run.mesh.mesh.ranks();
  std::vector<Program> programs;
  TEMPER_ASSIGN_OR_RETURN(RunFrame frame, RunFrame::Of(model, config, ranks, {}));
  for (int rank = 0; rank < ranks; ++rank) {
    frame.spec.mesh.rank = rank;
    TEMPER_ASSIGN_OR_RETURN(const CompiledPrograms one, CompileGraphs(frame.RunGraphs(), frame.spec));
    programs.push_back(one.programs.first());
    text += fmt::format("  rank {:<4} {}\n", rank, ToString(programs.back().arena_bytes));
  }
  std::vector<const Program*> of_ranks;
  of_ranks.reserve(programs.size());
  for (const Program& program : programs) of_ranks.push_back(&program);
  TEMPER_RETURN_IF_ERROR(VerifyAgreement(run.mesh.mesh, of_ranks));
  report->Write(text + "checked: the collectives of all ranks match\n");
  return OkStatus();
}

// REQUIRES: options.search is not empty.
Result<SearchGoal> GoalOf(const PlanOptions& options) {
  if (options.search == "fewest_devices") return SearchGoal::kFewestDevices;
  if (options.search == "throughput") return SearchGoal::kThroughput;
  return InvalidArgument(
      fmt::format("search: {} is not a goal: choose throughput or fewest_devices", Quoted(options.search)));
}

Status ReportSearch(const Planner& planner, const TrainSetup& setup, const PlanOptions& options, Report* report) {
  TEMPER_ASSIGN_OR_RETURN(const SearchGoal goal, GoalOf(options));
  TEMPER_ASSIGN_OR_RETURN(const SearchResult result, SearchPlans(planner, setup.run.config, goal));
  report->WriteEither(SearchText(result), SearchJson(result), options.json);
  return OkStatus();
}

// What holds of a step wherever it runs.
void NoteStep(const CompiledRun& run, const PlanFacts& facts, Report* report) {
  report->refusals = facts.refusals;
  PlanResult* const result = &report->result;
  const Program& train = run.train();
  result->device_bytes = train.arena_bytes.v;
  result->host_bytes = train.host.bytes.v;
  result->disk_bytes = train.disk.bytes.v;
  result->parameters = facts.parameters;
  result->trained_parameters = facts.trainable_parameters;
  result->tokens_per_step = facts.tokens;
  if (facts.length) result->steps = facts.length->steps;
}

void Cut(const BatchCut& cut, TrainSetup* setup) {
  ApplyCut(cut, &setup->run.config);
  if (cut.rows > 1) LogInfo("batch       " + cut.ToString());
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

void SayNotCut(const RunConfig& config) {
  LogInfo(fmt::format("batch       planned as {} of 1 row: add --cluster to see how the run would cut it",
                      Counted(config.batch.gradient_accumulation_steps, "micro-batch", "micro-batches")));
}

// As `temper train` would here.
Status CutHere(TrainSetup& setup, const Ranks& alone, int ranks) {
  ThisMachine here(setup.run.config, alone, ranks);
  if (setup.run.config.machine.device == DeviceChoice::kGpu && !here.memory.gpu) {
    SayNotCut(setup.run.config);
    return OkStatus();
  }
  const AskRates ask = here.ask();
  TEMPER_ASSIGN_OR_RETURN(
      const BatchCut cut,
      ChooseBatchCut(setup.run.config, CutOnMachine(here.memory, setup.model.model(), setup.run.config, ranks, ask)));
  Cut(cut, &setup);
  return OkStatus();
}
Result<CompiledRun> CompileHere(const TrainSetup& setup, const Ranks& alone, int ranks) {
  ThisMachine here(setup.run.config, alone, ranks);
  return CompileWithin(here.memory, setup.model.model(), setup.run.config, ranks, /*rank=*/0, {}, here.ask());
}

// Explains a wait that is felt, unless the result is destroyed before.
std::jthread ExplainWaiting() {
  return StartStoppableThread([](const std::stop_token& done) {
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    never.wait_for(lock, done, std::chrono::milliseconds(300), [] { return false; });
    if (done.stop_requested()) return;
    LogInfo("plan        comparing tiers of values and recomputation; the largest models take seconds");
  });
}

// What `temper train` would find wrong with the headers of the model's weights, where they are there.
void CheckWeights(Planning* plan) {
  TrainSetup& setup = plan->setup;
  const auto has_weights = [](const std::string& folder) {
    return !folder.empty() && !WeightsFileIn(PosixEnv(), folder).empty();
  };
  if (setup.model.teacher() != nullptr && has_weights(setup.model.teacher()->folder())) {
    if (const Status status = setup.model.OpenTeacherWeights(); !status.ok()) {
      plan->refusals.push_back("because of its teacher: " + status.message());
    }
  }
  if (!setup.reads_weights() || !has_weights(setup.model.folder())) return;
  if (const Status status = setup.model.OpenWeights(); !status.ok()) {
    plan->refusals.push_back("because of its weights: " + status.message());
  }
}

// What the devices of the cluster lack.
void CheckKernels(Planning* plan) {
  if (!plan->cluster || plan->cluster->has_kernels()) return;
  const Cluster& cluster = *plan->cluster;
  plan->refusals.push_back(fmt::format(
      "because of its device: a {} has compute capability {:.1f}, and Temper's kernels need {:.1f} or newer (bf16, "
      "asynchronous copies). All figures are of arithmetic in f32, as if it had such kernels. A card with them: "
      "--cluster RTX3090, RTX4090, L40S; without a card: --device cpu --cluster this",
      cluster.device, cluster.compute_capability, Cluster::kLeastComputeCapability));
}

// Reads the data where that is asked for, or takes no time and is of use.
Status LookAtData(bool reads_small, Planning* plan) {
  Status status = plan->setup.data;
  if (plan->options.read_data) {
    TEMPER_ASSIGN_OR_RETURN(plan->data, ReadData(plan->setup));
    TEMPER_ASSIGN_OR_RETURN(plan->fill, FillOf(plan->config(), *plan->data));
  } else if (status.ok() && reads_small) {
    auto data = SmallData(plan->setup);
    status = data.status();
    if (data.ok()) plan->data = *std::move(data);
  }
  if (status.ok()) return OkStatus();
  // A plan for other machines may be made where the data is not.
  if (status.code() == StatusCode::kNotFound && plan->cluster && !plan->cluster->shared) {
    LogInfo("note        the run's steps are not known: " + status.message());
  } else {
    plan->refusals.push_back("because of its data: " + status.message());
  }
  return OkStatus();
}

// Refuses options that need what is not there.
Status CheckOptions(const Planning& plan) {
  if (const char* option = plan.options.NeedsCluster(); option != nullptr && !plan.cluster) {
    return InvalidArgument(
        fmt::format("{} needs the speed of machines that can run this, and this one has fewer cores than ranks, or the "
                    "run is for a GPU: add --cluster (a preset, a file)",
                    option));
  }
  if (!plan.options.measured.empty() && plan.options.html.empty()) {
    return InvalidArgument("measured shows a trace beside the plan's page: add --html FILE");
  }
  return OkStatus();
}

Status CutPlanned(const Ranks& alone, Planning* plan) {
  const RunConfig& config = plan->config();
  if (!config.batch.auto_cut) return OkStatus();
  // Where ranks that this machine would start share its memory, the run is cut as `temper train` would cut it.
  const bool here = plan->ranks == config.machine.nprocs &&
                    (!plan->cluster || (plan->cluster->shared && plan->options.cluster.empty()));
  if (here) return CutHere(plan->setup, alone, plan->ranks);
  if (plan->planner) {
    TEMPER_ASSIGN_OR_RETURN(const BatchCut cut,
                            ChooseBatchCut(config, CutOnCluster(*plan->planner, config, plan->ranks, &plan->cut)));
    Cut(cut, &plan->setup);
    return OkStatus();
  }
  SayNotCut(config);
  return OkStatus();
}

// Without seconds: the step itself.
Status ReportStep(const Planning& plan, const Ranks& alone, Report* report) {
  const PlanOptions& options = plan.options;
  const RunConfig& config = plan.config();
  // A larger mesh, or one of a cluster's GPUs, is planned for unspecified machines.
  const bool as_here =
      !options.sharding && plan.ranks == config.machine.nprocs && (!plan.cluster || plan.cluster->shared);
  TEMPER_ASSIGN_OR_RETURN(const CompiledRun run,
                          as_here ? CompileHere(plan.setup, alone, plan.ranks)
                                  : CompileRun(plan.setup.model.model(),
                                               plan.cluster ? OnDevicesOf(*plan.cluster, config) : config, plan.ranks));
  if (options.sharding) return ReportSharding(plan.setup, run, report);
  report->result.fits = run.room.ok();
  if (!run.room.ok()) report->result.why_not = run.room.message();
  if (!plan.cluster) WarnOfScalarKernels(run, config.machine.device);
  TEMPER_ASSIGN_OR_RETURN(const PlanFacts facts, PlanFactsOf(plan, run));
  NoteStep(run, facts, report);
  if (options.program) {
    report->Write(PrintProgram(run.train()));
  } else {
    report->WriteEither(PlanText(run.train(), facts), PlanJson(run.train(), facts), options.json);
  }
  if (!run.room.ok()) LogWarning("this machine would refuse the run: " + run.room.message());
  if (as_here && !options.program && IsForThisMachine(config)) {
    LogInfo(fmt::format("speed       not known yet: add --cluster this, which measures this machine once (about {})",
                        ToString(CalibrationTakes())));
  }
  return OkStatus();
}

// With the speed of the cluster, and what would make the run fit there.
Status ReportOnCluster(Planning& plan, std::jthread waiting, Report* report) {
  const PlanOptions& options = plan.options;
  const RunConfig& config = plan.config();
  const bool keep_events = !options.trace.empty() || !options.html.empty();
  PlannedRun planned;
  if (const auto at = plan.cut.find(config.batch.per_device_train_batch_size); at != plan.cut.end() && !keep_events) {
    planned = std::move(at->second);
  } else {
    TEMPER_ASSIGN_OR_RETURN(planned, plan.planner->Plan(config, plan.ranks, keep_events));
  }
  waiting = {};
  if (plan.cluster->shared) WarnOfScalarKernels(planned.run, config.machine.device);
  const Forecast& forecast = planned.forecast;
  PlanOnCluster on{.cluster = &*plan.cluster, .forecast = &forecast};
  if (!forecast.fits) {
    LogInfo("plan        it does not fit: searching for settings that fit");
    TEMPER_ASSIGN_OR_RETURN(on.remedies, FindRemedies(*plan.planner, config, planned));
  }
  on.faster = FindFasterBases(*plan.planner, config, planned);
  if (!options.trace.empty()) {
    TEMPER_RETURN_IF_ERROR(WriteTextFileAtomically(PosixEnv(), options.trace, TraceText(forecast.simulation)));
  }
  TEMPER_ASSIGN_OR_RETURN(const PlanFacts facts, PlanFactsOf(plan, planned.run));
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
  NoteStep(planned.run, facts, report);
  report->result.fits = forecast.fits;
  if (!forecast.fits) {
    report->result.why_not =
        fmt::format("a rank needs {} of a device's {} and {} of its host's {}", ToString(forecast.bytes),
                    ToString(forecast.limit), ToString(forecast.host_bytes), ToString(forecast.host_limit));
  }
  report->result.tokens_per_second = forecast.tokens_per_second;
  if (forecast.tokens_per_second > 0) {
    report->result.seconds_per_step = static_cast<double>(facts.tokens) / forecast.tokens_per_second;
  }
  report->WriteEither(PlanText(train, facts, on), PlanJson(train, facts, on), options.json);
  return OkStatus();
}

// At the end, where they are read. `shown`: the report says them.
void SayRefusals(bool shown, Report* report) {
  for (const std::string& refusal : report->refusals) {
    if (!shown) LogWarning("the run would be refused " + refusal);
  }
  if (!report->refusals.empty()) report->result.why_not = report->refusals.front();
}

}  // namespace

Result<PlanResult> PlanRun(RunRequest request, const PlanOptions& options, const PlanFace& face) {
  if (!options.search.empty()) TEMPER_RETURN_IF_ERROR(GoalOf(options).status());  // before a machine is measured
  std::optional<Cluster> cluster;
  const FactsOfRun facts_of = [&](const RunConfig& config) -> Result<RunFacts> {
    const bool wanted = options.cluster == "this" || options.NeedsCluster() != nullptr;
    TEMPER_ASSIGN_OR_RETURN(cluster, ClusterOf(options, wanted && IsForThisMachine(config)));
    if (cluster && options.price) cluster->price_per_device_hour = *options.price;
    return FactsOn(cluster, config.machine.device);
  };
  const Ranks alone;  // also if a launcher started several
  TEMPER_ASSIGN_OR_RETURN(TrainSetup setup, SetUpTraining(std::move(request), Purpose::kPlan, alone, facts_of));
  Planning plan{.options = options, .setup = std::move(setup), .cluster = std::move(cluster)};
  CheckWeights(&plan);
  CheckKernels(&plan);
  const RunConfig& config = plan.config();
  const bool measured = options.cluster.empty() && plan.cluster;
  const bool elsewhere = measured && plan.cluster->shared && config.machine.device == DeviceChoice::kGpu;
  if (elsewhere || (measured && RanksOn(*plan.cluster, config) > plan.cluster->devices())) plan.cluster.reset();
  TEMPER_RETURN_IF_ERROR(CheckOptions(plan));
  const bool shows_step = options.sharding || options.program;
  TEMPER_RETURN_IF_ERROR(LookAtData(/*reads_small=*/!shows_step && options.search.empty(), &plan));
  std::jthread waiting = face.explains_waiting ? ExplainWaiting() : std::jthread();
  Report report(face);
  report.refusals = plan.refusals;
  if (plan.cluster) {
    TEMPER_ASSIGN_OR_RETURN(std::optional<RunRates> rates, RatesOnCluster(config, *plan.cluster));
    plan.planner.emplace(plan.setup.model.model(), *plan.cluster, plan.fill.value_or(RowFill()), std::move(rates));
    if (!options.search.empty() && !shows_step) {
      TEMPER_RETURN_IF_ERROR(ReportSearch(*plan.planner, plan.setup, options, &report));
      SayRefusals(/*shown=*/false, &report);
      return std::move(report.result);
    }
  }
  plan.ranks = plan.cluster ? RanksOn(*plan.cluster, config) : RanksNamed(config);
  TEMPER_RETURN_IF_ERROR(CutPlanned(alone, &plan));
  TEMPER_RETURN_IF_ERROR(shows_step || !plan.cluster ? ReportStep(plan, alone, &report)
                                                     : ReportOnCluster(plan, std::move(waiting), &report));
  SayRefusals(/*shown=*/!shows_step && !options.json, &report);
  return std::move(report.result);
}

}  // namespace temper
