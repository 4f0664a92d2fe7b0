#include "plan/planner.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "cluster/cluster_rates.h"
#include "compile/run/compile_run.h"
#include "compile/run/mesh_options.h"

namespace temper {

Planner::Planner(const Model& model, Cluster cluster, const RowFill& rows, std::optional<RunRates> rates)
    : model_(model), cluster_(std::move(cluster)), rows_(rows), rates_(std::move(rates)) {
  for (auto& [ranks, share] : cluster_.shares) share.rates.set_attended(rows.attended);
}

StepFacts StepFactsOf(const CompiledRun& run, const RunConfig& config, const RowFill& fill) {
  const int64_t row = *config.data.max_seq_len;
  const int64_t rows =
      config.batch.per_device_train_batch_size * run.data_ranks() * config.batch.gradient_accumulation_steps;
  const auto tokens = static_cast<int64_t>(static_cast<double>(rows * row) * fill.tokens);
  // A fraction of the pairs of rows that are one document each.
  const Flops attention{run.AttentionFlops(row).v * static_cast<double>(rows) * fill.attended};
  StepFacts facts{.tokens = tokens, .model_flops = run.ModelFlops(tokens, attention), .dtype = ComputeDType(config)};
  if (config.objective.rule->rated) {
    // As many rows of answers to other prompts, in micro-batches of the other Program's size.
    const int64_t rows_of_rank = rows / run.data_ranks();
    const int64_t at_once = config.batch.per_device_eval_batch_size.value_or(config.batch.per_device_train_batch_size);
    facts.passes_beside = std::ceil(static_cast<double>(rows_of_rank) / static_cast<double>(at_once));
  }
  return facts;
}

int RanksOn(const Cluster& cluster, const RunConfig& config) {
  const RunConfig::Mesh& m = config.mesh;
  const bool named = config.machine.nprocs > 1 || m.dp || m.fsdp || m.tp || m.cp || m.ep || m.pp > 1;
  return named || cluster.shared ? RanksNamed(config) : cluster.devices();
}

RunConfig OnDevicesOf(const Cluster& cluster, RunConfig config) {
  if (!cluster.shared) config.machine.device = DeviceChoice::kGpu;
  return config;
}

void KeepWithin(const RunConfig::Memory& memory, Forecast* forecast) {
  forecast->limit = std::min(forecast->limit, memory.device.value_or(forecast->limit));
  forecast->host_limit = std::min(forecast->host_limit, memory.host.value_or(forecast->host_limit));
  forecast->fits &= forecast->bytes <= forecast->limit && forecast->host_bytes <= forecast->host_limit;
}

RunRates Planner::RatesFor(int ranks) const {
  return rates_ ? *rates_ : RatesOn(cluster_, std::min(ranks, cluster_.devices_per_host));
}

// The rates that a run of `ranks` ranks chooses by, and for devices with a memory of their own its size. On a shared
// machine the limits follow from the run (CompileStagesWithin), as in the run itself.
MemorySpec Planner::MemoryFor(const RunConfig& config, int ranks) const {
  MemorySpec memory = MemorySpecOf(config);
  const int on_host = std::min(ranks, cluster_.devices_per_host);
  UseRates(RatesFor(ranks), &memory);
  if (cluster_.shared) return memory;
  memory.loss_chunks_keep_bits = false;  // GPUs
  // Runs that must be on the device are compiled without a limit: their size then shows whether they fit. So are
  // pipeline stages, whose limits only the user sets.
  if (config.memory.policy == TierPolicy::kDevice || config.mesh.pp > 1) return memory;
  if (!config.memory.device) memory.device = cluster_.MemoryOf(on_host);
  if (!config.memory.host) memory.host = cluster_.HostMemoryOf(on_host);
  return memory;
}

Result<PlannedRun> Planner::Plan(const RunConfig& config, int ranks, bool keep_events) const {
  return PlanWithin(MemoryFor(config, ranks), config, ranks, {.events = keep_events});
}

Result<PlannedRun> Planner::PlanIfItFits(const RunConfig& config, int ranks) const {
  return PlanWithin(MemoryFor(config, ranks), config, ranks, {.too_large = false});
}

Result<PlannedRun> Planner::PlanTraining(const RunConfig& config, int ranks) const {
  return PlanWithin(MemoryFor(config, ranks), config, ranks, {.trains_only = true});
}

Result<PlannedRun> Planner::PlanQuickly(const RunConfig& config, int ranks, bool first_that_fits) const {
  MemorySpec memory = MemoryFor(config, ranks);
  memory.quick = true;
  memory.first_that_fits = first_that_fits;
  return PlanWithin(std::move(memory), config, ranks, {});
}

Result<PlannedRun> Planner::PlanWithin(MemorySpec memory, const RunConfig& asked, int ranks,
                                       const Wanted& wanted) const {
  if (ranks > cluster_.devices()) {
    return InvalidArgument(
        fmt::format("the mesh has {} ranks, but cluster {} has {} devices: reduce the mesh, or raise hosts in "
                    "the cluster's file",
                    ranks, cluster_.name, cluster_.devices()));
  }
  const RunConfig config = OnDevicesOf(cluster_, asked);
  // Its forecast counts passes of another Program.
  const bool trains_only = wanted.trains_only && !config.objective.rule->rated;
  PlannedRun planned;
  const auto compile = [&](int rank) {
    return trains_only ? CompileTrainProgram(model_, config, ranks, rank, memory)
                       : CompileRun(model_, config, ranks, rank, {}, &memory);
  };
  Result<std::vector<CompiledRun>> stages = cluster_.shared
                                                ? CompileStagesWithin({.each = {cluster_.MemoryOf(ranks)},
                                                                       .ranks_per_machine = ranks,
                                                                       .packs = cluster_.packs && !memory.quick},
                                                                      model_, config, ranks, memory)
                                                : CompileStages(ranks, compile);
  const bool by_option = cluster_.shared && !memory.IsOpen();
  if (!stages.ok() && stages.status().code() == StatusCode::kOutOfMemory && !by_option && wanted.too_large) {
    // It does not fit in any way: plan it for devices that are large enough.
    memory.policy = TierPolicy::kDevice;
    memory.device = kNoLimit;
    stages = CompileStages(ranks, compile);
  }
  if (!stages.ok()) return stages.status();
  std::vector<const Program*> programs;
  for (const CompiledRun& stage : *stages) programs.push_back(&stage.train());
  std::vector<const Program*> beside;  // KTO's answers to other prompts
  for (const CompiledRun& stage : *stages) {
    if (config.objective.rule->rated) beside.push_back(stage.programs.Find(ProgramName(ProgramKind::kReference)));
  }
  planned.facts = StepFactsOf(stages->front(), config, rows_);
  planned.forecast = ForecastOf(programs, stages->front().mesh.mesh, cluster_, planned.facts, wanted.events, beside);
  if (!cluster_.shared) KeepWithin(config.memory, &planned.forecast);
  planned.run = std::move(stages->front());
  return planned;
}

StepFigures FiguresOf(const PlannedRun& planned, int64_t micro_batches) {
  const Forecast& forecast = planned.forecast;
  return FiguresOfStep(planned.run.train(), forecast.simulation, forecast.bytes,
                       planned.facts.model_flops.v / static_cast<double>(planned.facts.tokens), micro_batches);
}

std::optional<Seconds> SecondsOfSpill(const Cluster& cluster, const RunConfig& config, int on_host,
                                      const StepFigures& figures, Bytes excess, int64_t micro_batches,
                                      bool may_read_disk) {
  if (cluster.shared || config.memory.policy != TierPolicy::kAuto) return std::nullopt;
  const Bytes on_disk = std::max(excess - config.memory.host.value_or(cluster.HostMemoryOf(on_host)), Bytes{});
  if (on_disk > Bytes{} && !may_read_disk) return std::nullopt;
  return SecondsOfSpill(figures, excess, on_disk, micro_batches, cluster.LinksOf(on_host),
                        cluster.host_bandwidth / on_host);
}

CutEstimates CutOnCluster(const Planner& planner, const RunConfig& config, int ranks,
                          std::map<int64_t, PlannedRun>* plans) {
  const auto estimate = [](const PlannedRun& planned) {
    const Program& train = planned.run.train();
    return CutEstimate{.fits = planned.forecast.fits,
                       .spills = train.host.bytes > Bytes{} || train.disk.bytes > Bytes{},
                       .step = planned.forecast.simulation.step};
  };
  const int on_host = std::min(ranks, planner.cluster().devices_per_host);
  const auto step = [&planner, ranks](const Model& sample, const RunConfig& run,
                                      int64_t micro_batches) -> std::optional<RoomyStep> {
    const auto planned = Planner(sample, planner.cluster(), planner.rows()).Plan(run, ranks);
    if (!planned.ok()) return std::nullopt;
    return RoomyStep{FiguresOf(*planned, micro_batches), planned->forecast.limit};
  };
  const auto spill = [&planner, config, on_host](const StepFigures& figures, Bytes excess, int64_t micro_batches) {
    // Adapters leave the base as its files have it.
    const bool may_read_disk = config.model.method == TrainMethod::kLora || !config.memory.disk.empty();
    return SecondsOfSpill(planner.cluster(), config, on_host, figures, excess, micro_batches, may_read_disk);
  };
  EstimateCut quick = CutOfFewBlocks(planner.model(), config, ranks, {.step = step, .spill = spill});
  // Of cuts that few blocks have estimated: whether values leave the device. Such a cut, if chosen, is most likely
  // planned next; one that turns out to leave it is not. Without few blocks all cuts are compiled whole, and compared.
  const auto spills = std::make_shared<std::map<int64_t, bool>>();
  if (quick != nullptr) {
    quick = [spills, few = std::move(quick)](const RunConfig& cut) {
      Result<CutEstimate> result = few(cut);
      if (result.ok()) (*spills)[cut.batch.per_device_train_batch_size] = result->spills;
      return result;
    };
  }
  return {.whole = [=, &planner](const RunConfig& cut) -> Result<CutEstimate> {
            const auto found = spills->find(cut.batch.per_device_train_batch_size);
            const bool confirms = plans != nullptr && found != spills->end() && found->second;
            TEMPER_ASSIGN_OR_RETURN(PlannedRun planned,
                                    confirms ? planner.PlanIfItFits(cut, ranks) : planner.PlanQuickly(cut, ranks));
            const CutEstimate result = estimate(planned);
            if (confirms) plans->insert_or_assign(cut.batch.per_device_train_batch_size, std::move(planned));
            return result;
          },
          .quick = std::move(quick),
          .shares_memory = planner.cluster().shared,
          .fixed = BalancesExperts(planner.model(), config)};
}

}  // namespace temper
