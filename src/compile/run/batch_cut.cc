#include "compile/run/batch_cut.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/quantity.h"
#include "compile/estimate/stages_estimate.h"

namespace temper {
namespace {

// A larger micro-batch has to gain this part of a step: it takes memory, and forecasts are not more exact.
constexpr double kGain = 0.03;
// Beyond a cut that loses as much, larger micro-batches only lose more: memory runs short, or a pipeline empties.
constexpr double kLost = 0.1;

}  // namespace

std::string BatchCut::ToString() const {
  const std::string text =
      fmt::format("{} of {}", Counted(micro_batches, "micro-batch", "micro-batches"), Counted(rows, "row"));
  if (gain == 1) return text;
  return text + fmt::format(", estimated {:.2f} times as fast as {} of 1 row", gain, rows * micro_batches);
}

Result<BatchCut> ChooseBatchCut(const RunConfig& config, const EstimateCut& estimate) {
  TEMPER_CHECK(config.batch.auto_cut) << "the batch is cut";
  const int64_t rows_of_step = config.batch.gradient_accumulation_steps;
  struct Tried {
    BatchCut cut;
    CutEstimate is;
  };
  std::optional<Tried> of_one_row, best;
  std::optional<Status> refused;  // of the smallest micro-batch
  for (int64_t rows = 1; rows <= rows_of_step; ++rows) {
    if (rows_of_step % rows != 0) continue;
    const BatchCut cut{.rows = rows, .micro_batches = rows_of_step / rows};
    RunConfig run = config;
    ApplyCut(cut, &run);
    const Result<CutEstimate> estimated = estimate(run);
    if (!estimated.ok()) {
      if (!refused) refused = estimated.status();
      // What takes too much memory takes more with more rows. A schedule may refuse this number of micro-batches alone.
      if (estimated.status().code() == StatusCode::kOutOfMemory) break;
      continue;
    }
    // Where fewer rows are all in memory, more that are not are slower.
    if (best && (!estimated->fits || (estimated->limited && !best->is.limited))) break;
    const Tried tried{cut, *estimated};
    if (rows == 1 && tried.is.fits) of_one_row = tried;
    const bool lost = best && tried.is.step.v > best->is.step.v * (1 + kLost);
    if (!best || tried.is.step.v < best->is.step.v * (1 - kGain)) best = tried;
    if (lost || !tried.is.fits) break;
  }
  if (!best) return *refused;
  if (of_one_row && best->cut.rows > 1) best->cut.gain = of_one_row->is.step.v / best->is.step.v;
  return best->cut;
}

EstimateCut CutOnMachine(const RankMemory& available, const Model& model, int ranks, const AskRates& ask) {
  return [&available, &model, ranks, &ask](const RunConfig& config) -> Result<CutEstimate> {
    MemorySpec machine = MemorySpecOf(config);
    machine.quick = true;
    if (available.ranks_per_machine > 0) machine.ranks.ranks_per_host = available.ranks_per_machine;
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
      cut.fits = cut.fits && stage.room.ok();
      if (available.gpu) {
        cut.fits =
            cut.fits && Fits(stage.train(),
                             {.host = available.each, .gpu = available.gpu, .stages = static_cast<int>(stages.size())});
      }
      cut.limited = cut.limited || !stage.limited_because.empty();
      programs.push_back(&stage.train());
    }
    for (const StepEstimate& stage : EstimateStages(programs, stages.front().mesh.mesh,
                                                    {.device = &machine.rates,
                                                    .host = &machine.host_rates,
                                                    .links = machine.links,
                                                    .ranks = machine.ranks,
                                                    .shared = machine.shared})) {
      cut.step = std::max(cut.step, stage.step);
    }
    return cut;
  };
}

void ApplyCut(const BatchCut& cut, RunConfig* config) {
  RunConfig::Batch& batch = config->batch;
  batch.per_device_train_batch_size = cut.rows;
  batch.gradient_accumulation_steps = cut.micro_batches;
  batch.auto_cut = false;
  if (!batch.per_device_eval_batch_size) batch.per_device_eval_batch_size = cut.rows;
}

}  // namespace temper
