#include "compile/run/cut_estimates.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "compile/estimate/stages_estimate.h"
#include "compile/run/few_blocks.h"
#include "compile/run/run_frame.h"

namespace temper {

EstimateCut CutOfFewBlocks(const Model& model, const RunConfig& config, int ranks, QuickCut with) {
  const RunConfig::Mesh& mesh = config.mesh;
  const bool names_blocks = config.lora.NamesBlocks() || mesh.gathered_blocks || config.machine.recompute_blocks;
  MemorySpec without_limits = MemorySpecOf(config);
  without_limits.device = without_limits.host = kNoLimit;
  if (names_blocks || mesh.pp > 1 || !without_limits.IsOpen()) return nullptr;
  auto few = std::make_shared<const FewBlocks>(model, ranks > 1 ? kBetweenCollectives : 1);
  if (!few->any()) return nullptr;
  const auto blocks = static_cast<int64_t>(model.facts().kinds.size());
  return [few, blocks, with = std::move(with), asked = false](const RunConfig& cut) mutable -> Result<CutEstimate> {
    const int64_t micro_batches = cut.batch.gradient_accumulation_steps;
    RunConfig run = cut;
    run.batch.gradient_accumulation_steps = std::min(micro_batches, kFewMicroBatches);
    run.memory.policy = TierPolicy::kDevice;
    const auto whole = [&]() -> std::optional<RoomyStep> {
      Bytes room;
      const auto lines = few->Follow([&](const Model& sample) -> std::optional<StepFigures> {
        const std::optional<RoomyStep> step = with.step(sample, run, micro_batches);
        if (!step) return std::nullopt;
        room = step->room;
        return step->figures;
      });
      if (!lines) return std::nullopt;
      return RoomyStep{few->Of(*lines, blocks), room};
    };
    std::vector<Recompute> modes = {cut.machine.recompute};
    if (modes[0] == Recompute::kAuto) modes = {Recompute::kNone, Recompute::kSelective, Recompute::kBlock};
    CutEstimate best;
    for (const Recompute mode : modes) {
      run.machine.recompute = mode;
      std::optional<RoomyStep> step = whole();
      if (!step) return Unsupported("this model has no step that is cut so");
      if (with.rates && !std::exchange(asked, true)) {
        TEMPER_ASSIGN_OR_RETURN(const bool others, with.rates(/*needed=*/step->excess() > Bytes{}));
        if (others) step = whole();
      }
      const StepFigures& figures = step->figures;
      // More recomputing is only slower.
      if (step->excess() == Bytes{}) return CutEstimate{.fits = true, .step = {figures.seconds}};
      const bool may_spill = cut.memory.policy == TierPolicy::kAuto;
      const std::optional<Seconds> more = may_spill ? with.spill(figures, step->excess(), micro_batches) : std::nullopt;
      if (!more) continue;
      const double seconds = std::max(figures.seconds, more->v);  // as if all moves ran beside kernels
      if (best.fits && best.step.v <= seconds) continue;
      best = {.fits = true, .spills = true, .step = {seconds}};
    }
    if (!best.fits) return OutOfMemory("a step that is cut so does not fit");
    return best;
  };
}

namespace {

// A step of this run on this machine, and its seconds by `machine`'s rates.
StepEstimate EstimateOn(const MemorySpec& machine, std::span<const Program* const> stages, const Mesh& mesh) {
  StepEstimate slowest;
  for (StepEstimate& stage : EstimateStages(stages, mesh,
                                            {.device = &machine.rates,
                                            .host = &machine.host_rates,
                                            .links = machine.links,
                                            .ranks = machine.ranks,
                                            .shared = machine.shared})) {
    if (slowest.step < stage.step) slowest = std::move(stage);
  }
  return slowest;
}

MemorySpec MachineOf(const RankMemory& available, const RunConfig& config) {
  MemorySpec machine = MemorySpecOf(config);
  machine.quick = true;
  if (available.ranks_per_machine > 0) machine.ranks.ranks_per_host = available.ranks_per_machine;
  return machine;
}

EstimateCut WholeOnMachine(const RankMemory& available, const Model& model, int ranks, const AskRates& ask) {
  return [&available, &model, ranks, &ask](const RunConfig& config) -> Result<CutEstimate> {
    MemorySpec machine = MachineOf(available, config);
    const AskRates asks = [&](const Result<bool>& needed) {
      Result<std::optional<RunRates>> rates = ask(needed);
      if (rates.ok() && rates->has_value()) UseRates(**rates, &machine);
      return rates;
    };
    // Packed operands change all cuts alike, and take several compilations.
    RankMemory plain = available;
    plain.packs = false;
    TEMPER_ASSIGN_OR_RETURN(const std::vector<CompiledRun> stages,
                            CompileStagesWithin(plain, model, config, ranks, machine, ask ? asks : nullptr));
    CutEstimate cut{.fits = true};
    std::vector<const Program*> programs;
    for (const CompiledRun& stage : stages) {
      const Program& train = stage.train();
      cut.fits = cut.fits && stage.room.ok();
      if (available.gpu) {
        cut.fits =
            cut.fits &&
            Fits(train, {.host = available.each, .gpu = available.gpu, .stages = static_cast<int>(stages.size())});
      }
      cut.spills = cut.spills || train.host.bytes > Bytes{} || train.disk.bytes > Bytes{};
      programs.push_back(&train);
    }
    cut.step = EstimateOn(machine, programs, stages.front().mesh.mesh).step;
    return cut;
  };
}

// What a rank's arena may take of its device.
Bytes RoomFor(const Program& train, const RankMemory& available, const RunConfig& config) {
  const Bytes room = available.gpu ? available.gpu->for_arena(train, available.gpu->free, /*stages=*/1)
                                   : RoomForArenas(available.each.bytes);
  return std::min(room, config.memory.device.value_or(kNoLimit));
}

EstimateCut QuickOnMachine(const RankMemory& available, const Model& model, const RunConfig& config, int ranks,
                           const AskRates& ask) {
  auto machine = std::make_shared<MemorySpec>(MachineOf(available, config));
  const auto step = [&available, ranks, machine](const Model& sample, const RunConfig& run,
                                                 int64_t micro_batches) -> std::optional<RoomyStep> {
    MemorySpec roomy = *machine;
    roomy.policy = TierPolicy::kDevice;
    roomy.device = roomy.host = kNoLimit;
    const Result<CompiledRun> compiled = CompileRun(sample, run, ranks, /*rank=*/0, {}, &roomy);
    if (!compiled.ok()) return std::nullopt;
    const Program& train = compiled->train();
    const Program* const stage = &train;
    const StepEstimate estimate = EstimateOn(*machine, {&stage, 1}, compiled->mesh.mesh);
    return RoomyStep{
        FiguresOfStep(train, estimate, train.arena_bytes + train.host.bytes, /*flops_per_token=*/0, micro_batches),
        RoomFor(train, available, run)};
  };
  const auto spill = [&available, machine](const StepFigures& figures, Bytes excess,
                                           int64_t micro_batches) -> std::optional<Seconds> {
    LinkRates links = machine->links;
    Bytes on_disk;
    if (!available.gpu) {  // the device's memory is the host's, so the next tier is the disk
      links.host_to_device = links.disk_read;
      links.device_to_host = links.disk_write;
    } else {
      on_disk = std::max(excess - RoomForArenas(available.each.bytes), Bytes{});
    }
    return SecondsOfSpill(figures, excess, on_disk, micro_batches, links, /*host_bandwidth=*/0);
  };
  const auto rates = [&ask, machine](bool needed) -> Result<bool> {
    TEMPER_ASSIGN_OR_RETURN(const std::optional<RunRates> found, ask(needed));
    if (found) UseRates(*found, machine.get());
    return found.has_value();
  };
  return CutOfFewBlocks(model, config, ranks,
                        {.step = step, .spill = spill, .rates = ask ? QuickCut::AskRates(rates) : nullptr});
}

}  // namespace

bool BalancesExperts(const Model& model, const RunConfig& config) {
  const Result<double> coefficient = RouterAuxLossCoef(model.facts(), config);
  return coefficient.ok() && *coefficient > 0;
}

CutEstimates CutOnMachine(const RankMemory& available, const Model& model, const RunConfig& config, int ranks,
                          const AskRates& ask) {
  return {.whole = WholeOnMachine(available, model, ranks, ask),
          .quick = QuickOnMachine(available, model, config, ranks, ask),
          .shares_memory = !available.gpu,
          .fixed = BalancesExperts(model, config)};
}

}  // namespace temper
