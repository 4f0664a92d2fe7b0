#include "api/compile_training.h"

#include <fmt/core.h>

#include "base/quantity.h"
#include "compile/run/compile_run.h"
#include "compile/run/cut_estimates.h"
#include "compile/run/mesh_options.h"

namespace temper {
namespace {

Status CutBatch(TrainingRun& run) {
  const Ranks& ranks = run.setup.ranks;
  const Model& model = run.setup.model.model();
  RunConfig& config = run.setup.run.config;
  const int64_t asked = config.batch.gradient_accumulation_steps;
  if (run.setup.resume) {
    TEMPER_ASSIGN_OR_RETURN(const MeshSpec mesh, MeshOf(config, ranks.size(), ranks.rank(), model.facts().heads));
    TEMPER_RETURN_IF_ERROR(run.setup.resume->KeepCut(mesh.mesh.size(DataAxes(mesh.mesh)), &config));
  }
  if (config.batch.auto_cut) {
    const AskRates ask = [&](const Result<bool>& needed) { return run.rates->Ask(needed); };
    TEMPER_ASSIGN_OR_RETURN(const BatchCut cut,
                            ChooseBatchCut(config, CutOnMachine(run.available, model, config, ranks.size(), ask)));
    // How much is gained may differ: machines have other cores.
    const std::string into = BatchCut{.rows = cut.rows, .micro_batches = cut.micro_batches}.ToString();
    TEMPER_RETURN_IF_ERROR(ranks.CheckSame(into, [&](const std::string& firsts) {
      return InvalidArgument(
          fmt::format("this rank would cut its batch into {}, rank 0 into {}: give a number for "
                      "per_device_train_batch_size",
                      into, firsts));
    }));
    ApplyCut(cut, &config);
    if (cut.rows > 1) run.setup.run.notes["per_device_train_batch_size"] = cut.ToString();
  }
  const int64_t rows = config.batch.per_device_train_batch_size * config.batch.gradient_accumulation_steps;
  if (rows != asked) run.asked_accumulation = asked;
  return OkStatus();
}

}  // namespace

Status CompileTraining(TrainingRun& run) {
  const Ranks& ranks = run.setup.ranks;
  if (run.setup.reads_weights() || run.setup.keeps_base()) TEMPER_RETURN_IF_ERROR(run.setup.model.OpenWeights());
  TEMPER_RETURN_IF_ERROR(run.setup.model.OpenTeacherWeights());
  if (run.setup.resume && run.setup.keeps_base()) {
    TEMPER_RETURN_IF_ERROR(run.setup.resume->CheckBase(run.setup.model.weights()));
  }
  TEMPER_ASSIGN_OR_RETURN(std::optional<std::string> kept,
                          run.setup.resume ? run.setup.resume->rates() : std::optional<std::string>());
  const RunConfig& c = run.config();
  run.rates.emplace(PosixEnv(), ranks, c.machine.rates, run.OnMachine(), std::move(kept));
  if (c.batch.auto_cut) TEMPER_RETURN_IF_ERROR(CutBatch(run));
  const auto compile = [&] {
    return CompileWithin(run.available, run.setup.model.model(), run.config(), ranks.size(), ranks.rank(),
                         run.setup.resume ? run.setup.resume->decisions() : KeptDecisions(),
                         [&](const Result<bool>& needed) { return run.rates->Ask(needed); });
  };
  TEMPER_ASSIGN_OR_RETURN(run.compiled, compile());
  if (!run.setup.resume) return run.compiled.room;
  if (!run.asked_accumulation) {
    TEMPER_ASSIGN_OR_RETURN(run.asked_accumulation,
                            run.setup.resume->AskedAccumulation(run.config(), run.compiled.data_ranks()));
  }
  // A run resumed with more or fewer ranks keeps the rows of a step: gradient accumulation is adapted.
  TEMPER_ASSIGN_OR_RETURN(const int64_t accumulation,
                          run.setup.resume->AccumulationFor(run.config(), run.compiled.data_ranks()));
  if (accumulation == run.config().batch.gradient_accumulation_steps) return run.compiled.room;
  run.asked_accumulation = run.config().batch.gradient_accumulation_steps;
  run.setup.run.config.batch.gradient_accumulation_steps = accumulation;
  run.setup.run.notes["gradient_accumulation_steps"] = fmt::format(
      "adapted to {}, as the rows of a step follow from the checkpoint", Counted(run.compiled.data_ranks(), "rank"));
  TEMPER_ASSIGN_OR_RETURN(run.compiled, compile());
  return run.compiled.room;
}

}  // namespace temper
