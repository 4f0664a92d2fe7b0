#include "api/forward_pass.h"

#include <fmt/core.h>

#include "base/log.h"
#include "compile/run/compiled_run.h"
#include "config/data_option.h"
#include "config/reading_options.h"
#include "config/run_options.h"
#include "config/validate.h"
#include "model/adapted_model.h"
#include "model/base_format.h"
#include "model/teacher.h"
#include "program/program_names.h"
#include "run/data_report.h"
#include "run/expand_sources.h"
#include "run/machine.h"
#include "run/reading_of_run.h"
#include "run/reference_model.h"
#include "run/teacher_model.h"
#include "settings/run_config.h"

namespace temper {
namespace {

// What rows are read for.
RowUse UseOf(const ObjectiveRule& objective, ProgramKind kind, const std::string& row_template) {
  return kind == ProgramKind::kScore ? RowUse::kSequences : RowUseOf(objective, row_template);
}

const ObjectiveRule& ObjectiveOfHead(const OpenedModel& model) {
  const int64_t classes = model.model().facts().classes;
  return classes == 0 ? Sft() : classes == 1 ? Reward() : Classify();
}

// The task's rule. Errors: the task needs another head than the model has; settings that it has no use for.
Result<const ObjectiveRule*> ObjectiveFor(const ForwardSettings& s, const ForwardTask& task, const OpenedModel& model) {
  RunConfig run;
  run.objective.rule = task.objective != nullptr ? task.objective : &ObjectiveOfHead(model);
  run.objective.tasks = task.tasks;
  run.objective.reference = task.reference;
  run.objective.teacher = task.teacher;
  run.objective.teacher_base_dtype = task.teacher_base_dtype;
  run.data.train_on_prompt = s.train_on_prompt;
  run.data.reasoning_turns = s.reasoning_turns;
  run.data.row_template = s.row_template;
  run.data.long_rows = s.long_rows;
  if (run.objective.rule->head != ObjectiveOfHead(model).head) {
    return InvalidArgument(fmt::format("task: {} is not what {} ({}) was trained for: set task: {}, or leave it out",
                                       run.objective.rule->name, s.model.choice.model,
                                       model.model().facts().architecture, ObjectiveOfHead(model).name));
  }
  if (task.kind == ProgramKind::kEval) TEMPER_RETURN_IF_ERROR(CheckTask(run));
  if (task.kind == ProgramKind::kScore && s.long_rows == LongRows::kProportional) {
    return InvalidArgument(
        "long_rows: proportional cuts prompts and answers, and texts that are judged have none: set "
        "long_rows: cut or drop");
  }
  const ObjectiveRule& rule = run.objective.resolved_rule();
  return rule.with_accuracy != nullptr ? rule.with_accuracy : &rule;
}

// The model that answers are compared with.
Result<OpenedModel> ReferenceFor(const ForwardTask& task, const ObjectiveRule& objective, const OpenedModel& model,
                                 const std::string& name, int64_t row) {
  if (task.reference.empty() && !model.adapter()) {
    return InvalidArgument(
        fmt::format("task: {} compares with the model as it was before, and {} has no adapter that could be left out: "
                    "give that model by --reference",
                    objective.name, name));
  }
  return OpenReference(PosixEnv(), task.reference.empty() ? model.folder() : task.reference, model, name, row);
}

Status CheckUseOfHead(const ForwardSettings& s, const OpenedModel& model, ProgramKind kind) {
  const bool judges = model.class_head().has_value();
  if (kind == ProgramKind::kScore && !judges) {
    return InvalidArgument(fmt::format(
        "{} has no head that judges texts ({}): train one with temper train --task classify or reward, or measure "
        "its loss with temper eval",
        s.model.choice.model, model.model().facts().architecture));
  }
  if (judges && (s.train_on_prompt || !s.row_template.empty() || s.reasoning_turns == ReasoningTurns::kLast)) {
    return InvalidArgument(
        fmt::format("{} judges texts as a whole: leave out train_on_prompt, row_template and reasoning_turns",
                    s.model.choice.model));
  }
  return OkStatus();
}

}  // namespace

std::vector<OptionGroup> ForwardSettings::Groups(const char* what, bool answers) {
  std::vector<OptionGroup> groups = model.Groups();
  std::vector<Option> options = {
      DataOption(
          "data", data,
          fmt::format("{}, a folder or a pattern, or name of a data set in the Hugging Face cache; repeat it for "
                      "several. FILE:max_samples=N: only its first N rows",
                      what),
          /*has_passes=*/false),
      {.name = "split", .target = &split, .help = "train, test, ...: of a folder or a data set with several splits"},
      {.name = "max_seq_len",
       .target = &max_seq_len,
       .help = "tokens of a row; what becomes of longer ones: long_rows",
       .range = {.at_least = 2},
       .default_text = "2048, or the model's if that is less"},
      {.name = "data_cache",
       .target = &data_cache,
       .help = "folder that keeps the data's tokens for the next start",
       .default_text = "none: they are kept in memory"},
      ChatTemplateKwargs(kwargs),
      LongRowsOption(long_rows)};
  for (Option& option : ReadingOptions(reading)) options.push_back(std::move(option));
  if (answers) {
    options.push_back(RowTemplateOption(row_template));
    options.push_back(ReasoningTurnsOption(reasoning_turns));
    options.push_back(
        {.name = "train_on_prompt", .target = &train_on_prompt, .help = "prompts count toward the loss, too"});
  }
  options.push_back(
      {.name = "skip_bad_rows", .target = &skip_bad_rows, .help = "skip and count bad rows instead of stopping"});
  groups.push_back({"Data", std::move(options)});
  return groups;
}

Result<std::unique_ptr<ForwardPass>> OpenForwardPass(ForwardSettings s, ForwardTask task) {
  const ProgramKind kind = task.kind;
  ModelOptions& options = s.model;
  TEMPER_RETURN_IF_ERROR(CheckRowTemplate({.data = s.data,
                                           .reading = s.reading,
                                           .chat_template = options.choice.chat_template,
                                           .chat_template_kwargs = s.kwargs,
                                           .row_template = s.row_template,
                                           .reasoning_turns = s.reasoning_turns}));
  TEMPER_ASSIGN_OR_RETURN(s.data, ExpandSources(PosixEnv(), s.data, {.split = s.split, .for_training = false}));
  TEMPER_ASSIGN_OR_RETURN(const ProcessorChoice choice, ChooseProcessor(options.device));
  TEMPER_ASSIGN_OR_RETURN(OpenedModel model, OpenedModel::Open(PosixEnv(), options.choice));
  TEMPER_RETURN_IF_ERROR(CheckUseOfHead(s, model, kind));
  TEMPER_RETURN_IF_ERROR(options.ResolveBase(model));
  TEMPER_RETURN_IF_ERROR(model.OpenWeights());
  const int threads = options.ResolvedThreads();
  const ModelFacts& facts = model.model().facts();
  TEMPER_ASSIGN_OR_RETURN(const ObjectiveRule* const rule, ObjectiveFor(s, task, model));
  const ObjectiveRule& objective = *rule;
  const int64_t row = s.max_seq_len.value_or(DefaultMaxSeqLen(facts.max_positions));
  if (row > facts.max_positions && facts.positions_are_learned) {
    return InvalidArgument(
        fmt::format("max_seq_len {0} exceeds the model's {1} positions, and it has no embedding "
                    "for the rest: set --max_seq_len {1}",
                    row, facts.max_positions));
  }
  std::optional<OpenedModel> reference;
  if (kind == ProgramKind::kEval && objective.has(ProgramKind::kReference)) {
    TEMPER_ASSIGN_OR_RETURN(reference, ReferenceFor(task, objective, model, options.choice.model, row));
  }
  const DType dtype = options.ResolvedDType(choice);
  if (objective.distills) {
    if (choice.on_gpu()) {
      return Unsupported(fmt::format("task: {} has no kernels for GPUs yet: set --device cpu", objective.name));
    }
    TEMPER_RETURN_IF_ERROR(OpenTeacher(PosixEnv(),
                                       {.teacher = task.teacher,
                                        .base_dtype = task.teacher_base_dtype,
                                        .dtype = dtype == DType::kBF16 ? ComputeType::kBf16 : ComputeType::kF32,
                                        .max_seq_len = row},
                                       options.choice.model, &model));
    TEMPER_RETURN_IF_ERROR(model.OpenTeacherWeights());
  }
  const std::string& trained = options.choice.adapter.empty() ? options.choice.model : options.choice.adapter;
  const RowReading reading = s.reading;
  RowUse use = UseOf(objective, kind, s.row_template);
  s.reading = ReadingAsTrained(PosixEnv(), trained, s.data, reading, use);
  const bool by_format = !options.choice.chat_template.empty() || !s.kwargs.text.empty() || !(reading == RowReading());
  if (!by_format && s.row_template.empty()) {
    s.row_template = RowTemplateAsTrained(PosixEnv(), trained, s.data, s.reading, use);
    use = UseOf(objective, kind, s.row_template);
  }
  TEMPER_ASSIGN_OR_RETURN(RunData data, LoadRunData(PosixEnv(), model,
                                                    {.sources = s.data,
                                                     .reading = s.reading,
                                                     .use = use,
                                                     .max_seq_len = row,
                                                     .train_on_prompt = s.train_on_prompt,
                                                     .skip_bad_rows = s.skip_bad_rows,
                                                     .template_date = Today(),
                                                     .chat_template_kwargs = s.kwargs,
                                                     .row_template = s.row_template,
                                                     .reasoning_turns = s.reasoning_turns,
                                                     .long_rows = s.long_rows,
                                                     .threads = threads,
                                                     .cache = s.data_cache}));
  DescribeData(data.dataset, s.data, row, facts.max_positions);

  TEMPER_ASSIGN_OR_RETURN(TrainableSet adapter, model.AdapterSet());
  const AdaptedModel adapted{.model = model.model(),
                             .trains = std::move(adapter),
                             .base = options.Base(facts, choice),
                             .norms = RowNorms::kLoaded};
  std::vector<ProgramKind> kinds = {kind};
  if (reference) kinds.push_back(ProgramKind::kReference);
  std::vector<Graph> forwards;
  forwards.reserve(kinds.size());  // `graphs` has their addresses
  std::vector<RunGraph> graphs;
  for (const ProgramKind of : kinds) {
    ForwardSpec spec = {.dtype = dtype,
                        .tokens = row,
                        .row = row,
                        .objective = &objective,
                        .graph = of,
                        .objective_settings = {.weighted = data.dataset.store.weighted(), .tasks = task.tasks}};
    if (objective.distills) {
      const TeacherPass teacher(*model.model().teacher(), spec);
      spec.objective_settings.teacher = teacher.head();
      forwards.push_back(teacher.Joined(adapted.Forward(spec), static_cast<int>(facts.kinds.size())));
    } else {
      forwards.push_back(adapted.Forward(spec));
    }
    graphs.push_back({ProgramName(of), &forwards.back()});
  }
  TEMPER_ASSIGN_OR_RETURN(Processor processor, Processor::Open(choice, threads));
  TEMPER_ASSIGN_OR_RETURN(const ProcessMemory available, MemoryFor(processor));
  StepSpec step;
  step.threads = choice.on_gpu() ? 1 : threads;
  step.memory = MemorySpecOf(options.run);
  step.joins_adapters = !choice.on_gpu();
  TEMPER_ASSIGN_OR_RETURN(CompiledPrograms compiled, CompileForwardWithin(available, graphs, std::move(step)));
  auto pass = std::make_unique<ForwardPass>(ForwardPass{.objective = &objective,
                                                        .row = row,
                                                        .model = std::move(model),
                                                        .data = std::move(data),
                                                        .processor = std::move(processor),
                                                        .programs = std::move(compiled)});
  const Program& program = pass->programs.programs.first();
  TEMPER_ASSIGN_OR_RETURN(pass->arena, pass->processor.Reserve(program.arena_bytes));
  TEMPER_ASSIGN_OR_RETURN(pass->far,
                          ReserveFar(program, options.run.memory.disk, pass->model, pass->processor.device(), threads));
  TEMPER_ASSIGN_OR_RETURN(
      pass->executor, Executor::Create(program, *pass->arena, pass->processor.kernels(), nullptr, pass->far.tiers()));
  pass->adapters = adapted.trains.adapters;
  pass->rows = adapted.trains.rows;
  pass->reference_model = std::move(reference);
  if (!pass->reference_model) return pass;
  if (!pass->far.mapped.empty()) {
    return Unsupported(fmt::format(
        "task: {} compares with another model, but weights of {} are read from its files (memory.disk), so there is no "
        "place for those of the other: give the command more memory",
        objective.name, options.choice.model));
  }
  const Program* const compares = pass->programs.programs.Find(ProgramName(ProgramKind::kReference));
  TEMPER_ASSIGN_OR_RETURN(pass->reference, Executor::Create(*compares, *pass->arena, pass->processor.kernels(), nullptr,
                                                            pass->far.tiers()));
  return pass;
}

BufferLookup ForwardPass::Lookup() const {
  return [this](const std::string& name) {
    const int i = programs.programs.first().FindBuffer(name);
    return i < 0 || far.mapped.contains(name) ? DevicePart() : executor->BufferPart(i);
  };
}

}  // namespace temper
