// temper plan: compiles the very Program that train would run, and reports on it. Reads config.json, no weight.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "cli/commands.h"
#include "cli/compiled_run.h"
#include "cli/train_setup.h"
#include "plan/report.h"
#include "plan/sharding.h"
#include "runtime/arena.h"
#include "train/mesh_options.h"
#include "train/progress.h"

namespace temper {
namespace {

constexpr char kUsage[] =
    "usage: temper plan [RUN.yaml] --model FOLDER [--option value ...]\n\n"
    "Compiles the training step that `temper train` with the same options would run, and prints its memory by class "
    "at\n"
    "the fullest moment, its arithmetic and its segments. Needs config.json only.\n";

PlanFacts PlanFactsOf(const TrainSetup& setup, const CompiledRun& run) {
  const RunConfig& c = setup.run.config;
  PlanFacts facts{.model = c.model.model,
                  .architecture = setup.model.model().facts().architecture,
                  .method = run.targets.empty() ? "full" : "lora",
                  .dtype = std::string(ToString(ComputeDType(c))),
                  .recompute = c.machine.recompute == Recompute::kNone ? "none" : "block",
                  .parameters = run.parameters,
                  .trainable_parameters = run.trainable_parameters,
                  .rows = c.batch.per_device_train_batch_size,
                  .row_tokens = *c.data.max_seq_len,
                  .micro_batches = c.batch.gradient_accumulation_steps,
                  .mesh = run.mesh.mesh.ranks() > 1 ? run.mesh.mesh.ToString() : "",
                  .ranks = run.mesh.mesh.ranks(),
                  .data_ranks = run.data_ranks(),
                  .pipeline = run.pipeline,
                  .available = AvailableMemory()};
  const double row = static_cast<double>(facts.row_tokens);
  const int64_t rows = facts.rows * facts.data_ranks * facts.micro_batches;
  facts.model_flops = run.ModelFlops(rows * facts.row_tokens, static_cast<double>(rows) * row * (row + 1) / 2);
  return facts;
}

// The drawing, and what the step of every rank reserves.
Result<int> PrintSharding(const TrainSetup& setup, const CompiledRun& run) {
  const RunConfig& config = setup.run.config;
  const Model& model = setup.model.model();
  TEMPER_ASSIGN_OR_RETURN(const Graph forward, AdaptedForward(model, config));
  const auto rules = DefaultPlacementRules(run.mesh.residual);
  TEMPER_ASSIGN_OR_RETURN(const auto placements, PlaceWeights(forward, run.mesh.mesh, rules));
  const bool rich = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  const PipelineSpec& pipeline = run.mesh.pipeline;
  PipelineCut cut{.stages = run.mesh.mesh.size(Axis::kPp), .chunks_per_stage = pipeline.chunks_per_stage};
  TEMPER_ASSIGN_OR_RETURN(cut.chunk_of_block, ChunkOfBlocks(NumBlocks(forward), cut.chunks(), pipeline.layers));
  std::string text = DrawSharding(forward, run.mesh.mesh, placements, StagesOfWeights(forward, cut),
                                  {.colours = rich, .boxes = rich && LocaleIsUtf8()});
  text += "\nreserved for a step (weights, gradients, optimizer states, activations)\n";
  const int ranks = run.mesh.mesh.ranks();
  for (int rank = 0; rank < ranks; ++rank) {
    TEMPER_ASSIGN_OR_RETURN(const CompiledRun one, CompileRun(model, config, ranks, rank));
    text += fmt::format("  rank {:<4} {}\n", rank, ToString(one.train().arena_bytes));
  }
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace

Result<int> PlanCommand(const Arguments& arguments) {
  bool json = false, program = false, sharding = false;
  std::vector<OptionGroup> more = {
      {"Report",
       {{.name = "json", .target = &json, .help = "print the report as JSON"},
        {.name = "program", .target = &program, .help = "print the compiled Program itself"},
        {.name = "sharding", .target = &sharding, .help = "draw which rank of the mesh holds what"}}}};
  TEMPER_ASSIGN_OR_RETURN(auto setup, SetUpTraining(arguments, Purpose::kPlan, kUsage, std::move(more)));
  if (!setup) return 0;
  const int ranks = RanksNamed(setup->run.config);
  TEMPER_ASSIGN_OR_RETURN(const CompiledRun run, CompileRun(setup->model.model(), setup->run.config, ranks));
  if (sharding) return PrintSharding(*setup, run);
  const PlanFacts facts = PlanFactsOf(*setup, run);
  const std::string text = program ? PrintProgram(run.train())
                           : json  ? PlanJson(run.train(), facts)
                                   : PlanText(run.train(), facts);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace temper
