#include "api/evaluation.h"

#include <fmt/core.h>

#include "base/log.h"
#include "base/quantity.h"
#include "compile/run/compiled_run.h"
#include "compile/train_step.h"
#include "config/data_option.h"
#include "config/run_options.h"
#include "config/validate.h"
#include "model/adapted_model.h"
#include "model/base_format.h"
#include "program/program_names.h"
#include "run/data.h"
#include "run/data_report.h"
#include "run/expand_sources.h"
#include "run/far_memory.h"
#include "run/machine.h"
#include "settings/run_config.h"
#include "train/evaluation_progress.h"
#include "train/trainer.h"

namespace temper {

std::vector<OptionGroup> EvaluationSettings::Groups() {
  std::vector<OptionGroup> groups = model.Groups();
  groups.push_back(
      {"Data",
       {DataOption("data", data,
                   "file to measure on, a folder or a pattern, or name of a data set in the Hugging Face cache; "
                   "repeat it for "
                   "several. "
                   "FILE:max_samples=N: only its first N rows",
                   /*has_passes=*/false),
        ColumnsOption(columns),
        {.name = "max_seq_len",
         .target = &max_seq_len,
         .help = "tokens of a row; longer samples are cut",
         .range = {.at_least = 2},
         .default_text = "2048, or the model's if that is less"},
        {.name = "data_cache",
         .target = &data_cache,
         .help = "folder that keeps the data's tokens for the next start",
         .default_text = "none: they are kept in memory"},
        ChatTemplateKwargs(kwargs),
        RowTemplateOption(row_template),
        ReasoningTurnsOption(reasoning_turns),
        {.name = "train_on_prompt", .target = &train_on_prompt, .help = "prompts count toward the loss, too"},
        {.name = "skip_bad_rows", .target = &skip_bad_rows, .help = "skip and count bad rows instead of stopping"}}});
  return groups;
}

Result<Evaluation> RunEvaluation(EvaluationSettings settings, const std::function<bool()>& stop) {
  auto& [options, sources, columns, data_cache, max_seq_len, train_on_prompt, skip_bad_rows, kwargs, row_template,
         reasoning_turns] = settings;
  TEMPER_RETURN_IF_ERROR(CheckRowTemplate({.data = sources,
                                           .columns = columns,
                                           .chat_template = options.choice.chat_template,
                                           .chat_template_kwargs = kwargs,
                                           .row_template = row_template,
                                           .reasoning_turns = reasoning_turns}));
  TEMPER_ASSIGN_OR_RETURN(sources, ExpandSources(PosixEnv(), sources, {}));
  TEMPER_ASSIGN_OR_RETURN(const ProcessorChoice choice, ChooseProcessor(options.device));
  TEMPER_ASSIGN_OR_RETURN(OpenedModel model, OpenedModel::Open(PosixEnv(), options.choice));
  TEMPER_RETURN_IF_ERROR(options.ResolveBase(model));
  TEMPER_RETURN_IF_ERROR(model.OpenWeights());
  const int threads = options.ResolvedThreads();
  const ModelFacts& facts = model.model().facts();
  const int64_t row = max_seq_len.value_or(DefaultMaxSeqLen(facts.max_positions));
  if (row > facts.max_positions && facts.positions_are_learned) {
    return InvalidArgument(
        fmt::format("max_seq_len {0} exceeds the model's {1} positions, and it has no embedding "
                    "for the rest: set --max_seq_len {1}",
                    row, facts.max_positions));
  }
  TEMPER_ASSIGN_OR_RETURN(const RunData data, LoadRunData(PosixEnv(), model,
                                                          {.sources = sources,
                                                           .columns = columns,
                                                           .use = RowUseOf(Sft(), row_template),
                                                           .max_seq_len = row,
                                                           .train_on_prompt = train_on_prompt,
                                                           .skip_bad_rows = skip_bad_rows,
                                                           .template_date = Today(),
                                                           .chat_template_kwargs = kwargs,
                                                           .row_template = row_template,
                                                           .reasoning_turns = reasoning_turns,
                                                           .threads = threads,
                                                           .cache = data_cache}));
  DescribeData(data.dataset, sources, row, facts.max_positions);

  TEMPER_ASSIGN_OR_RETURN(TrainableSet adapter, model.AdapterSet());
  const AdaptedModel adapted{.model = model.model(), .trains = std::move(adapter), .base = options.Base(choice)};
  const Graph forward = adapted.Forward({.dtype = options.ResolvedDType(choice),
                                         .tokens = row,
                                         .row = row,
                                         .objective_settings = {.weighted = data.dataset.store.weighted()}});
  TEMPER_ASSIGN_OR_RETURN(const Processor processor, Processor::Open(choice, threads));
  TEMPER_ASSIGN_OR_RETURN(const ProcessMemory available, MemoryFor(processor));
  const std::vector<RunGraph> graphs = {{ProgramName(ProgramKind::kEval), &forward}};
  StepSpec step;
  step.threads = choice.on_gpu() ? 1 : threads;
  step.memory = MemorySpecOf(options.run);
  step.joins_adapters = !choice.on_gpu();
  TEMPER_ASSIGN_OR_RETURN(const CompiledPrograms compiled, CompileForwardWithin(available, graphs, std::move(step)));
  const Program& eval = compiled.programs.first();
  TEMPER_ASSIGN_OR_RETURN(const auto arena, processor.Reserve(eval.arena_bytes));
  TEMPER_ASSIGN_OR_RETURN(const FarArenas far,
                          ReserveFar(eval, options.run.memory.disk, model, processor.device(), threads));
  TEMPER_ASSIGN_OR_RETURN(const auto executor,
                          Executor::Create(eval, *arena, processor.kernels(), nullptr, far.tiers()));
  TEMPER_RETURN_IF_ERROR(model.Load([&](const std::string& name) {
    const int i = eval.FindBuffer(name);
    return i < 0 || far.mapped.contains(name) ? DevicePart() : executor->BufferPart(i);
  }));

  const TokenStore& store = data.dataset.store;
  std::vector<int32_t> samples(static_cast<size_t>(store.size()));
  for (size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<int32_t>(i);
  Evaluator evaluator(*executor, store, samples, {.max_seq_len = row, .shuffle = false},
                      [&](int32_t sample) { return data.dataset.PlaceOf(sample); });
  ProgressDisplay display;
  EvaluationProgress progress(display);
  TEMPER_ASSIGN_OR_RETURN(const EvaluationReport report,
                          evaluator.Run(stop, [&](int64_t done, int64_t rows) { progress.Update(done, rows); }));
  display.Finish();
  LogInfo(fmt::format("eval        {} of {} tokens in {}: {} rows/s, {} tokens/s", Counted(report.rows, "row"), row,
                      ToString(report.time), Grouped(report.rows_per_second()), Grouped(report.tokens_per_second())));
  return Evaluation{report, store.size()};
}

}  // namespace temper
