// temper plan: compiles the very Program that train would run, and reports on it. Reads config.json, no weight.
#include <cstdio>

#include "cli/commands.h"
#include "cli/compiled_run.h"
#include "cli/train_setup.h"
#include "plan/report.h"
#include "runtime/arena.h"

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
                  .available = AvailableMemory()};
  const double row = static_cast<double>(facts.row_tokens);
  const int64_t rows = facts.rows * facts.micro_batches;
  facts.model_flops = run.ModelFlops(rows * facts.row_tokens, static_cast<double>(rows) * row * (row + 1) / 2);
  return facts;
}

}  // namespace

Result<int> PlanCommand(const Arguments& arguments) {
  bool json = false, program = false;
  std::vector<OptionGroup> more = {
      {"Report",
       {{.name = "json", .target = &json, .help = "print the report as JSON"},
        {.name = "program", .target = &program, .help = "print the compiled Program itself"}}}};
  TEMPER_ASSIGN_OR_RETURN(auto setup, SetUpTraining(arguments, Purpose::kPlan, kUsage, std::move(more)));
  if (!setup) return 0;
  TEMPER_ASSIGN_OR_RETURN(const CompiledRun run, CompileRun(setup->model.model(), setup->run.config));
  const PlanFacts facts = PlanFactsOf(*setup, run);
  const std::string text = program ? PrintProgram(run.train())
                           : json  ? PlanJson(run.train(), facts)
                                   : PlanText(run.train(), facts);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace temper
