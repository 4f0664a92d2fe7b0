#include "settings/run_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/quantity.h"
#include "format/quoted.h"
#include "tensor/format_rule.h"

namespace temper {
namespace {

// Default lengths and rates that users expect (from the docs of transformers and PEFT, and from experience).
constexpr int64_t kDefaultMaxSeqLen = 2048;
constexpr double kLoraLearningRate = 2e-4;
constexpr double kFullLearningRate = 2e-5;
// Of preferences: DPOConfig's default, and TRL's advice for LoRA.
constexpr double kLoraPreferenceRate = 1e-5;
constexpr double kFullPreferenceRate = 1e-6;
constexpr double kWarmupRatio = 0.03;
constexpr int64_t kFewestUsefulSteps = 20;

void ResolveType(const RunFacts& facts, ResolvedRun& run) {
  ComputeType& dtype = run.config.model.dtype;
  const auto base = FormatOf(run.config.model.base_dtype), embedding = FormatOf(run.config.model.embedding_dtype);
  if (dtype == ComputeType::kAuto && (base || embedding)) {
    dtype = ComputeType::kBf16;
    run.notes["dtype"] = fmt::format("{}: {} is computed in bf16", base ? "base_dtype" : "embedding_dtype",
                                     ToString(base ? *base : *embedding));
  } else if (dtype == ComputeType::kAuto && run.config.model.method == TrainMethod::kLora && facts.modules_format) {
    dtype = ComputeType::kBf16;
    run.notes["dtype"] = fmt::format("files in {} are computed in bf16", ToString(*facts.modules_format));
  } else if (dtype == ComputeType::kAuto && run.config.model.method == TrainMethod::kLora && facts.experts_format &&
             facts.experts_format->quantised()) {
    dtype = ComputeType::kBf16;
    run.notes["dtype"] = fmt::format("experts in {} are computed in bf16", ToString(*facts.experts_format));
  } else if (dtype == ComputeType::kAuto) {
    dtype = facts.has_bf16 ? ComputeType::kBf16 : ComputeType::kF32;
    run.notes["dtype"] = facts.processor + (facts.has_bf16 ? " has bf16 instructions" : " has no bf16 instructions");
  } else if (dtype == ComputeType::kBf16 && !facts.has_bf16) {
    run.warnings.push_back(facts.processor +
                           " has no bf16 instructions: dtype: bf16 saves memory, but is slower than f32");
  }
}

Status ResolveRows(const RunFacts& facts, ResolvedRun& run) {
  std::optional<int64_t>& rows = run.config.data.max_seq_len;
  const std::optional<int64_t> most = facts.model_max_seq_len;
  if (!rows) {
    rows = DefaultMaxSeqLen(most.value_or(kDefaultMaxSeqLen));
    run.notes["max_seq_len"] = most && *most <= kDefaultMaxSeqLen ? "the model's number of positions" : "default";
  } else if (most && *rows > *most) {
    const std::string what = fmt::format("max_seq_len {} is more than the model's {} positions", *rows, *most);
    if (facts.positions_are_learned) {
      return InvalidArgument(fmt::format("{}: it has no embedding for the rest. Set max_seq_len: {}", what, *most));
    }
    // A row of a pair holds two documents, which may each have half of it.
    const bool pairs = run.config.objective.has_pairs();
    if (pairs && *rows / 2 <= *most) return OkStatus();
    run.warnings.push_back(fmt::format(
        "{}{}: it was not trained on longer documents", what,
        pairs ? fmt::format(" also where two answers share them ({} each with its prompt)", *rows / 2) : ""));
  }
  return OkStatus();
}

Status ResolveAdapter(const RunFacts& facts, ResolvedRun& run) {
  LoraConfig& lora = run.config.lora;
  if (!facts.adapter) return OkStatus();
  const RunConfig::Model& m = run.config.model;
  if (m.method == TrainMethod::kFull) {
    return InvalidArgument(
        fmt::format("model {} is an adapter, but method is full: merge it first (temper export --model {} --output_dir "
                    "MERGED) and train MERGED, or continue training the adapter with method: lora",
                    m.model, ShellWord(m.model)));
  }
  if (lora == *facts.adapter) return OkStatus();
  // Dropout is not a property of the trained weights: it may change from run to run.
  LoraConfig wanted = lora, theirs = *facts.adapter;
  wanted.dropout = theirs.dropout = 0;
  LoraConfig of_modules = theirs;
  of_modules.modules_to_save = wanted.modules_to_save;
  if (wanted != theirs && (wanted == of_modules || LoraConfig{.modules_to_save = wanted.modules_to_save} == wanted) &&
      wanted != LoraConfig()) {
    return InvalidArgument(fmt::format(
        "train_modules differs from the modules that adapter {} has in full: remove it to continue with the adapter",
        m.adapter.empty() ? m.model : m.adapter));
  }
  if (wanted != LoraConfig() && wanted != theirs) {
    return InvalidArgument(
        fmt::format("lora.* differs from the configuration of adapter {} (r {}, alpha {}): remove the lora section to "
                    "continue with it, or start a new one: on its base model, or on what temper export makes of it",
                    m.adapter.empty() ? m.model : m.adapter, theirs.r, theirs.alpha));
  }
  const double dropout = lora.dropout;
  lora = *facts.adapter;
  lora.dropout = dropout;
  run.notes["lora.r"] = "from the adapter to continue";
  return OkStatus();
}

}  // namespace

std::optional<ElementFormat> FormatOf(BaseType base) {
  switch (base) {
    case BaseType::kAuto:
      return std::nullopt;
    case BaseType::kInt8:
      return ElementFormat::Int8Rows();
    case BaseType::kNf4:
      return ElementFormat::Nf4();
  }
  return std::nullopt;
}

Result<BaseType> BaseTypeOf(BaseType asked, std::optional<ElementFormat> stored) {
  for (const BaseType type : {BaseType::kInt8, BaseType::kNf4}) {
    if (!stored || FormatOf(type) != stored) continue;
    if (asked == BaseType::kAuto || asked == type) return type;
    return InvalidArgument(fmt::format("base_dtype is {}, but the model's files hold {}: remove base_dtype",
                                       ToString(*FormatOf(asked)), ToString(*stored)));
  }
  return asked;
}

Status CheckKeptType(const char* setting, BaseType kept, ComputeType dtype) {
  const std::optional<ElementFormat> format = FormatOf(kept);
  if (!format) return OkStatus();
  if (dtype == ComputeType::kF32) {
    return InvalidArgument(fmt::format("{0}: {1} is computed in bf16, but dtype is f32: set dtype: bf16, or remove {0}",
                                       setting, ToString(*format)));
  }
  return OkStatus();
}

int64_t DefaultMaxSeqLen(int64_t positions) {
  return std::min(kDefaultMaxSeqLen, positions);
}

Result<ResolvedRun> Resolve(const RunConfig& config, const RunFacts& facts) {
  ResolvedRun run;
  run.config = config;
  RunConfig& c = run.config;
  const bool numbers = !facts.modules_format || TrainsInFull(*facts.modules_format);
  if (!numbers && c.model.method == TrainMethod::kFull) {
    return InvalidArgument(fmt::format(
        "model {0} is stored as {1}, which method: full cannot train: set method: lora, or give weights that "
        "are not quantised (temper export {0} --dtype bf16 --output_dir FOLDER makes them)",
        c.model.model, ToString(*facts.modules_format)));
  }
  TEMPER_ASSIGN_OR_RETURN(const BaseType base, BaseTypeOf(c.model.base_dtype, facts.modules_format));
  if (base != c.model.base_dtype) run.notes["base_dtype"] = "as the model's files hold it";
  c.model.base_dtype = base;
  ResolveType(facts, run);
  if (c.machine.device == DeviceChoice::kAuto) {
    c.machine.device = facts.device;
    if (facts.device == DeviceChoice::kGpu) run.notes["device"] = facts.processor + " was found";
  }
  TEMPER_RETURN_IF_ERROR(CheckKeptType("base_dtype", c.model.base_dtype, c.model.dtype));
  TEMPER_RETURN_IF_ERROR(CheckKeptType("embedding_dtype", c.model.embedding_dtype, c.model.dtype));
  TEMPER_RETURN_IF_ERROR(ResolveRows(facts, run));
  TEMPER_RETURN_IF_ERROR(ResolveAdapter(facts, run));
  if (c.objective.rule->head != ObjectiveRule::Head::kVocabulary && c.model.method == TrainMethod::kLora) {
    // As PEFT's task_type SEQ_CLS does.
    std::vector<std::string> saved = c.lora.saved_names();
    if (std::find(saved.begin(), saved.end(), kClassHeadModule) == saved.end()) {
      saved.emplace_back(kClassHeadModule);
      c.lora.modules_to_save = std::move(saved);
      run.notes["train_modules"] = "the head, beside the adapter";
    }
  }
  c.objective.rule = &c.resolved_rule();
  if (c.data.template_date.empty()) c.data.template_date = facts.today;
  c.data.weighted = c.data.weighted || facts.weighted_data;
  if (!c.optimizer.learning_rate) {
    const bool lora = c.model.method == TrainMethod::kLora;
    const bool pairs = c.objective.rule->prefers;
    c.optimizer.learning_rate =
        pairs ? (lora ? kLoraPreferenceRate : kFullPreferenceRate) : (lora ? kLoraLearningRate : kFullLearningRate);
    run.notes["learning_rate"] =
        fmt::format("default of method {}{}", lora ? "lora" : "full", pairs ? " with preferences" : "");
    if (c.optimizer.rule->scales_with_gradient) {
      run.warnings.push_back(
          fmt::format("learning_rate {} is a default for optimizer: {}, whose steps do not shrink with the gradient: "
                      "{} learns very "
                      "slowly with it. Set a higher one",
                      *c.optimizer.learning_rate, DefaultUpdateRule().name, c.optimizer.rule->name));
    }
  }
  if (c.length.max_steps == -1) c.length.max_steps.reset();  // as transformers writes "not set"
  if (!c.length.warmup_ratio && !c.length.warmup_steps) {
    c.length.warmup_ratio = c.length.lr_scheduler_type == ScheduleKind::kConstant ? 0 : kWarmupRatio;
  }
  if (!c.batch.per_device_eval_batch_size && !c.batch.auto_cut) {
    c.batch.per_device_eval_batch_size = c.batch.per_device_train_batch_size;
  }
  const bool saves_by_steps = c.output.save_strategy == CadenceStrategy::kSteps && c.output.save_steps > 0;
  const bool evaluates_by_steps = EvaluationStrategy(c) == CadenceStrategy::kSteps;
  if (!c.output.eval_steps && c.evaluates() && saves_by_steps && evaluates_by_steps) {
    c.output.eval_steps = c.output.save_steps;
    run.notes["eval_steps"] = "at every checkpoint";
  }
  if (c.output.early_stopping_patience && !c.output.load_best_model_at_end) {
    run.warnings.push_back(
        "with early_stopping_patience the result is the last checkpoint, after the best one: set "
        "load_best_model_at_end: true to get the best");
  }
  if (c.output.eval_strategy == CadenceStrategy::kSteps && !c.output.eval_steps) {
    return InvalidArgument(
        "eval_strategy is steps, but neither eval_steps nor save_steps says how many: set eval_steps");
  }
  const bool in_between =
      EvaluationStrategy(c) == CadenceStrategy::kEpoch || (evaluates_by_steps && c.output.eval_steps);
  if (c.output.early_stopping_patience && !in_between) {
    return InvalidArgument(
        "early_stopping_patience needs evaluations during the run, and there are none before its end: set eval_steps, "
        "or eval_strategy: epoch");
  }
  if (!c.machine.threads) {
    c.machine.threads = std::max<int64_t>(facts.cpu_cores / c.machine.nprocs, 1);
    run.notes["threads"] = c.machine.nprocs > 1 ? "the cores, shared by nprocs" : "one per core";
  }
  const RunConfig::SchedulerKwargs& kwargs = c.length.kwargs;
  if (kwargs.min_lr && *kwargs.min_lr > *c.optimizer.learning_rate) {
    return InvalidArgument(
        fmt::format("lr_scheduler_kwargs.min_lr ({}) is above learning_rate ({}): it is the lowest rate, "
                    "lower it",
                    *kwargs.min_lr, *c.optimizer.learning_rate));
  }
  if (c.length.max_steps) TEMPER_RETURN_IF_ERROR(CheckSteps(c, *c.length.max_steps));
  return run;
}

Result<Schedule> ScheduleOf(const RunConfig& config, int64_t total_steps) {
  TEMPER_CHECK(config.optimizer.learning_rate.has_value()) << "the configuration is not resolved";
  const RunConfig::SchedulerKwargs& k = config.length.kwargs;
  Schedule s;
  s.kind = config.length.lr_scheduler_type;
  s.learning_rate = *config.optimizer.learning_rate;
  s.total_steps = total_steps;
  s.warmup_steps =
      config.length.warmup_steps.value_or(WarmupSteps(config.length.warmup_ratio.value_or(0), total_steps));
  s.num_cycles = k.num_cycles.value_or(s.kind == ScheduleKind::kCosineWithRestarts ? 1 : s.num_cycles);
  s.lr_end = k.lr_end.value_or(s.lr_end);
  s.power = k.power.value_or(s.power);
  s.timescale = k.timescale;
  s.min_lr_rate = k.min_lr_ratio.value_or(k.min_lr_rate.value_or(0));
  // If the peak is 0, so is the floor.
  if (k.min_lr && s.learning_rate > 0) s.min_lr_rate = *k.min_lr / s.learning_rate;
  s.decay_steps = k.num_decay_steps.value_or(0);
  s.stable_steps = k.num_stable_steps;
  s.warmup_shape = k.warmup_type;
  s.decay_shape = k.decay_type;
  TEMPER_RETURN_IF_ERROR(s.Check());
  return s;
}

CadenceStrategy EvaluationStrategy(const RunConfig& config) {
  const RunConfig::Output& o = config.output;
  if (o.eval_strategy != CadenceStrategy::kAuto) return o.eval_strategy;
  return o.eval_steps ? CadenceStrategy::kSteps : o.save_strategy;
}

RunCadence CadenceOf(const RunConfig& config, int64_t total_steps) {
  const RunConfig::Output& o = config.output;
  const auto cadence = [&](CadenceStrategy strategy, double steps) {
    Cadence at{.by_epoch = strategy == CadenceStrategy::kEpoch};
    if (strategy == CadenceStrategy::kSteps) at.steps = StepsBetween(steps, total_steps);
    return at;
  };
  RunCadence all{.logging = cadence(CadenceStrategy::kSteps, o.logging_steps),
                 .saving = cadence(o.save_strategy, o.save_steps)};
  // Without checkpoints in between evaluation comes at the end only, unless it is turned off.
  const CadenceStrategy evaluation = EvaluationStrategy(config);
  if (o.eval_strategy != CadenceStrategy::kNo) all.evaluation = cadence(evaluation, o.eval_steps.value_or(0));
  return all;
}

Status CheckCadence(const RunConfig& config, int64_t total_steps) {
  const RunConfig::Output& o = config.output;
  if (!o.load_best_model_at_end) return OkStatus();
  const RunCadence at = CadenceOf(config, total_steps);
  if (at.saving.by_epoch || !at.evaluation || at.evaluation->by_epoch || at.evaluation->steps == 0) return OkStatus();
  if (at.saving.steps % at.evaluation->steps == 0) return OkStatus();
  return InvalidArgument(fmt::format(
      "load_best_model_at_end needs an evaluation at every checkpoint: of {} steps, save_steps {} comes every {} and "
      "eval_steps {} every {}. Set both to the same, or to numbers of steps of which the first is a multiple of the "
      "second",
      total_steps, o.save_steps, at.saving.steps, o.eval_steps.value_or(0), at.evaluation->steps));
}

Status CheckSteps(const RunConfig& config, int64_t total_steps) {
  TEMPER_RETURN_IF_ERROR(ScheduleOf(config, total_steps).status());
  return CheckCadence(config, total_steps);
}

namespace {

// A warning with a remedy for a run too short to learn from.
std::optional<std::string> ShortRunWarning(const RunConfig& config, int64_t total_steps, const PackedRows& packed) {
  if (total_steps >= kFewestUsefulSteps) return std::nullopt;
  std::vector<std::string> remedies;
  if (packed.per_row > 2 && packed.steps_without > total_steps) {
    remedies.push_back(fmt::format("packing puts {:.0f} {} into a row, packing: false makes it {} steps",
                                   packed.per_row, config.objective.has_pairs() ? "pairs of answers" : "documents",
                                   packed.steps_without));
  }
  const int64_t accumulation = config.batch.gradient_accumulation_steps;
  if (accumulation > 1 && !config.length.max_steps) {
    remedies.push_back(fmt::format("lower gradient_accumulation_steps (now {})", accumulation));
  }
  remedies.emplace_back(config.length.max_steps ? "raise max_steps" : "raise num_train_epochs");
  return fmt::format("the run has only {}, too few to learn much: {}", Counted(total_steps, "optimizer step"),
                     fmt::join(remedies, ", or "));
}

}  // namespace

std::vector<std::string> StepWarnings(const RunConfig& config, int64_t total_steps, const PackedRows& packed) {
  std::vector<std::string> warnings;
  const Result<Schedule> schedule = ScheduleOf(config, total_steps);
  TEMPER_CHECK(schedule.ok()) << schedule.status().message();
  if (auto warning = schedule->Warning()) warnings.push_back(*std::move(warning));
  if (auto warning = ShortRunWarning(config, total_steps, packed)) warnings.push_back(*std::move(warning));
  return warnings;
}

}  // namespace temper
