#include "config/validate.h"

#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "base/env.h"
#include "config/run_options.h"
#include "format/quoted.h"
#include "settings/best_metric.h"

namespace temper {

Status CheckRowTemplate(const RunConfig::Data& data) {
  if (data.row_template.empty()) return OkStatus();
  const auto both = [](const char* other) {
    return InvalidArgument(fmt::format(
        "both row_template and {} are set, but a row template makes the whole text of a row, without the chat "
        "template: remove one of the two",
        other));
  };
  if (!data.chat_template.empty()) return both("chat_template");
  if (!data.chat_template_kwargs.text.empty()) return both("chat_template_kwargs");
  if (data.reasoning_turns != ReasoningTurns::kAll) return both("reasoning_turns");
  bool columns = !data.reading.columns.empty(), roles = !data.reading.roles.empty();
  for (const DataSources* sources : {&data.data, &data.eval_data}) {
    for (const DataSource& source : *sources) {
      columns = columns || !source.columns.empty();
      roles = roles || !source.roles.empty();
    }
  }
  if (roles) return both("roles");
  if (data.reading.separator != kParagraph) return both("prompt_separator");
  if (!columns) return OkStatus();
  return InvalidArgument(
      "both row_template and columns are set, but a row template has columns under their own names, such as "
      "{{ frage }}: remove columns");
}

namespace {

// By text only: code that deletes files must handle links.
bool IsWithin(const std::string& path, const std::string& folder) {
  const std::string inner = AbsolutePath(path), outer = AbsolutePath(folder);
  return inner == outer || inner.starts_with(outer == "/" ? outer : outer + "/");
}

Status CheckRequired(const RunConfig& c, Purpose purpose) {
  const auto missing = [&c](const char* what, const char* key, const char* value) {
    return InvalidArgument(fmt::format(
        "no {} given: add --{} {}, or '{}: {}' in the YAML file{}", what, key, value, key, value,
        c.output.resume ? "; a run that is resumed needs its settings again: name its run.yaml first, as in "
                          "temper train FOLDER/run.yaml --resume"
                        : ""));
  };
  if (c.model.model.empty()) return missing("model", "model", "FOLDER");
  if (purpose == Purpose::kPlan) return OkStatus();
  if (c.data.data.empty()) return missing("training data", "data", "FILE");
  if (c.output.output_dir.empty()) return missing("output folder", "output_dir", "FOLDER");
  return OkStatus();
}

Status CheckInit(const RunConfig& c) {
  const std::string& init = c.model.init_lora_weights;
  const std::string_view prefix = "pissa_niter_";
  const std::string_view number = std::string_view(init).substr(std::min(prefix.size(), init.size()));
  const bool iterations =
      init.starts_with(prefix) && !number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos;
  if (init == "true") return OkStatus();
  if (init != "pissa" && init != "olora" && !iterations) {
    return InvalidArgument(
        fmt::format("lora.init_lora_weights: {} is not known: give true, pissa, pissa_niter_4 or olora", Quoted(init)));
  }
  const char* const in_vain = c.model.method == TrainMethod::kFull ? "method: full has no adapters"
                              : c.model.from_scratch               ? "from_scratch has no weights to begin as"
                              : !c.model.adapter.empty()           ? "adapter continues those that there are"
                              : !c.model.add_tokens.empty()
                                  ? "add_tokens makes a base of its own (export --add_tokens first, and train that)"
                              : c.lora.use_dora ? "lora.use_dora begins with the norms of whole weights"
                                                : nullptr;
  if (in_vain == nullptr) return OkStatus();
  return InvalidArgument(fmt::format("lora.init_lora_weights is {}, but {}: remove one of them", init, in_vain));
}

Status CheckMethod(const RunConfig& c) {
  const RunConfig::Model& m = c.model;
  for (const OptimizerGroup& group : c.optimizer.groups) {
    if (!group.learning_rate || c.optimizer.learning_rate.value_or(1) > 0) continue;
    return InvalidArgument(
        "optimizer_groups has a learning_rate, but that of the run, whose schedule it follows, is 0: set both above 0, "
        "or remove the group's");
  }
  if (!m.add_tokens.empty() && (m.from_scratch || !m.adapter.empty())) {
    return InvalidArgument(
        fmt::format("add_tokens gives a trained model rows for new tokens, and {}: remove one of them{}",
                    m.from_scratch ? "from_scratch draws all rows" : "adapter is of a model without them",
                    m.from_scratch ? "" : ", or export the adapter's model and train that"));
  }
  TEMPER_RETURN_IF_ERROR(CheckInit(c));
  if (m.method == TrainMethod::kLora) {
    if (c.optimizer.stochastic_rounding) {
      return InvalidArgument(
          "stochastic_rounding saves the f32 copies of a model's weights, but method is lora, which trains small "
          "adapters: remove it, or set method: full");
    }
    if (m.from_scratch) {
      return InvalidArgument("from_scratch trains every weight, but method is lora: add method: full");
    }
    const auto* names = std::get_if<std::vector<std::string>>(&c.lora.target_modules);
    const bool no_modules = names ? names->empty() : std::get<std::string>(c.lora.target_modules).empty();
    if (no_modules && c.lora.parameter_names().empty()) {
      return InvalidArgument("lora.target_modules is empty: nothing would be trained. Use all-linear, or name modules");
    }
    if (c.lora.ensure_weight_tying && c.lora.saved_names().empty() && c.lora.trainable_token_indices.empty()) {
      return InvalidArgument(
          "lora.ensure_weight_tying has no effect without train_modules: remove it, or name embed_tokens there");
    }
    return OkStatus();
  }
  if (m.base_dtype != BaseType::kAuto) {
    return InvalidArgument(
        "base_dtype is for frozen weights, but method is full, which trains them: remove base_dtype, or set method: "
        "lora");
  }
  if (m.embedding_dtype != BaseType::kAuto) {
    return InvalidArgument(
        "embedding_dtype is for a frozen embedding and head, but method is full, which trains them: remove "
        "embedding_dtype, or set method: lora");
  }
  if (!m.adapter.empty()) {
    return InvalidArgument(
        "adapter is set, but method is full: remove adapter, or set method: lora. To "
        "train every weight of the merged model, run temper export first");
  }
  if (!c.lora.trainable_token_indices.empty()) {
    return InvalidArgument(
        "lora.trainable_token_indices is set, but method is full, which trains every row: remove it, or set method: "
        "lora");
  }
  if (!c.lora.saved_names().empty()) {
    return InvalidArgument(
        "train_modules is set, but method is full, which trains every module: remove train_modules, or set method: "
        "lora");
  }
  if (c.optimizer.lora_plus_ratio) {
    return InvalidArgument(
        "lora_plus_ratio is set, but method is full, which has no adapter: remove it, or set method: lora");
  }
  if (c.lora != LoraConfig()) {
    return InvalidArgument("lora.* is set, but method is full: remove the lora section, or set method: lora");
  }
  return OkStatus();
}

Status CheckMemory(const RunConfig& c) {
  const Recompute recompute = c.machine.recompute;
  if (c.machine.recompute_blocks && (recompute == Recompute::kNone || recompute == Recompute::kAuto)) {
    return InvalidArgument(
        fmt::format("memory.recompute_blocks is set, but memory.recompute is {}: set it to "
                    "selective or block, or remove recompute_blocks",
                    ToString(recompute)));
  }
  return OkStatus();
}

Status CheckSchedule(const RunConfig& c) {
  using Kind = ScheduleKind;
  const RunConfig::SchedulerKwargs& k = c.length.kwargs;
  const Kind kind = c.length.lr_scheduler_type;
  const bool stable_decay = kind == Kind::kWarmupStableDecay;
  const bool cosine =
      kind == Kind::kCosine || kind == Kind::kCosineWithMinLr || kind == Kind::kCosineWithRestarts || stable_decay;
  const RunConfig::SchedulerKwargs defaults;
  struct Unused {
    bool wrong;
    const char *key, *taker;  // of a setting, and of a schedule that reads it
  };
  const Unused without_effect[] = {
      {k.num_cycles && !cosine, "num_cycles", "cosine"},
      {k.min_lr && kind != Kind::kCosineWithMinLr, "min_lr", "cosine_with_min_lr"},
      {k.min_lr_rate && kind != Kind::kCosineWithMinLr, "min_lr_rate", "cosine_with_min_lr"},
      {k.lr_end && kind != Kind::kPolynomial, "lr_end", "polynomial"},
      {k.power && kind != Kind::kPolynomial, "power", "polynomial"},
      {k.timescale && kind != Kind::kInverseSqrt, "timescale", "inverse_sqrt"},
      {k.min_lr_ratio && !stable_decay, "min_lr_ratio", "warmup_stable_decay"},
      {k.num_decay_steps && !stable_decay, "num_decay_steps", "warmup_stable_decay"},
      {k.num_stable_steps && !stable_decay, "num_stable_steps", "warmup_stable_decay"},
      {k.warmup_type != defaults.warmup_type && !stable_decay, "warmup_type", "warmup_stable_decay"},
      {k.decay_type != defaults.decay_type && !stable_decay, "decay_type", "warmup_stable_decay"},
  };
  for (const auto& [wrong, key, taker] : without_effect) {
    if (!wrong) continue;
    return InvalidArgument(
        fmt::format("lr_scheduler_kwargs.{} has no effect on this lr_scheduler_type: remove it, or set "
                    "lr_scheduler_type: {}",
                    key, taker));
  }
  if (kind == Kind::kCosineWithMinLr && k.min_lr.has_value() == k.min_lr_rate.has_value()) {
    return InvalidArgument(
        "lr_scheduler_type: cosine_with_min_lr needs one of lr_scheduler_kwargs.min_lr (a learning rate) "
        "and lr_scheduler_kwargs.min_lr_rate (a part of learning_rate)");
  }
  if (stable_decay && !k.num_decay_steps) {
    return InvalidArgument("lr_scheduler_type: warmup_stable_decay needs lr_scheduler_kwargs.num_decay_steps");
  }
  const bool warms_up = c.length.warmup_ratio.value_or(0) > 0 || c.length.warmup_steps.value_or(0) > 0;
  if (kind == Kind::kConstant && warms_up) {
    return InvalidArgument(
        "lr_scheduler_type: constant has no warmup: use constant_with_warmup, or remove warmup_ratio "
        "and warmup_steps");
  }
  if (c.length.max_steps == 0) {
    return InvalidArgument(
        "max_steps is 0: nothing would be trained. Give at least 1, or remove it to train for "
        "num_train_epochs");
  }
  return OkStatus();
}

// Sections of options are named after tasks: those of other tasks have their defaults.
Status CheckSections(const RunConfig& c) {
  RunConfig given = c, fresh;
  const OptionSet options = RunOptions(given), defaults = RunOptions(fresh);
  for (const ObjectiveRule* const task : Objectives()) {
    if (c.objective.is(*task)) continue;
    for (const OptionGroup& group : options.groups()) {
      for (const Option& option : group.options) {
        if (!option.name.starts_with(fmt::format("{}.", task->name))) continue;
        if (ValueAsYaml(option) == ValueAsYaml(*defaults.Find(option.name))) continue;
        return InvalidArgument(fmt::format("{0}.* has no effect on task: {1}: remove it, or set task: {0}", task->name,
                                           c.objective.rule->name));
      }
    }
  }
  return OkStatus();
}

}  // namespace

Status CheckLongRows(const ObjectiveRule& task, LongRows long_rows) {
  const auto refused = [&](const char* value, const char* why) {
    return InvalidArgument(fmt::format("task: {} has no use for long_rows: {}: {}", task.name, value, why));
  };
  const RowFacts& rows = FactsOf(task.rows);
  if (long_rows == LongRows::kCut && rows.no_cut != nullptr) return refused("cut", rows.no_cut);
  if (long_rows != LongRows::kProportional || rows.no_proportional == nullptr) return OkStatus();
  return refused("proportional", rows.no_proportional);
}

namespace {

struct SettingOfRows {
  bool given;
  const char* name;
  WhyNot why;  // such rows have no use for it
};
Status CheckUses(const ObjectiveRule& task, std::initializer_list<SettingOfRows> settings) {
  for (const auto& [given, name, why] : settings) {
    if (!given || why == nullptr) continue;
    return InvalidArgument(fmt::format("task: {} has no use for {}: {}: remove it", task.name, name, why));
  }
  return OkStatus();
}

}  // namespace

Status CheckRows(const ObjectiveRule& task, const RunConfig::Data& data) {
  TEMPER_RETURN_IF_ERROR(CheckLongRows(task, data.long_rows));
  const RowFacts& rows = FactsOf(task.rows);
  return CheckUses(task, {{data.train_on_prompt, "train_on_prompt", rows.no_train_on_prompt},
                          {data.reasoning_turns == ReasoningTurns::kLast, "reasoning_turns", rows.no_reasoning_turns},
                          {!data.row_template.empty(), "row_template", rows.no_row_template}});
}

Status CheckTask(const RunConfig& c) {
  TEMPER_RETURN_IF_ERROR(CheckSections(c));
  TEMPER_RETURN_IF_ERROR(CheckRows(*c.objective.rule, c.data));
  const RunConfig::Objective& o = c.objective;
  if (c.output.token_accuracy && !o.is(Sft())) {
    return InvalidArgument(
        fmt::format("token_accuracy has no effect on task: {}: remove it, or set task: {}", o.rule->name, Sft().name));
  }
  if (!o.reference.empty() && !o.rule->has(ProgramKind::kReference)) {
    return InvalidArgument(fmt::format(
        "reference has no effect on task: {}, which compares with no other model: remove it", o.rule->name));
  }
  if (o.rule->distills && o.teacher.empty()) {
    return InvalidArgument(fmt::format("task: {} needs the model to learn from: add --teacher MODEL", o.rule->name));
  }
  if (!o.rule->distills && (!o.teacher.empty() || o.teacher_base_dtype != BaseType::kAuto)) {
    return InvalidArgument(
        fmt::format("{} has no effect on task: {}, which learns from no other model: remove it, or "
                    "set task: {}",
                    o.teacher.empty() ? "teacher_base_dtype" : "teacher", o.rule->name, Distill().name));
  }
  if (o.rule->distills && c.regularisation.label_smoothing_factor > 0) {
    return InvalidArgument(fmt::format(
        "task: {} has no use for label_smoothing_factor: the teacher's distribution takes the place of labels: remove "
        "it",
        o.rule->name));
  }
  if (o.has_pairs() && o.tasks.dpo.label_smoothing > 0 && o.tasks.dpo.loss != PreferenceKind::kRobust) {
    return InvalidArgument(fmt::format(
        "task: {} has no use for dpo.label_smoothing: it is that of dpo.loss_type: robust: remove it", o.rule->name));
  }
  const RowFacts& rows = FactsOf(o.rule->rows);
  return CheckUses(*o.rule,
                   {{c.regularisation.label_smoothing_factor > 0, "label_smoothing_factor", rows.no_label_smoothing},
                    {c.mesh.cp.value_or(1) > 1, "mesh.cp", rows.no_cp}});
}

namespace {

Status CheckOutput(const RunConfig& c) {
  const RunConfig::Output& o = c.output;
  if (!c.data.eval_data.empty() && c.data.eval_fraction > 0) {
    return InvalidArgument(
        "both eval_data and eval_fraction are set: evaluation takes its rows from one of them, remove the other");
  }
  if (c.data.packing && c.data.pad_to_max_seq_len) {
    return InvalidArgument(
        "pad_to_max_seq_len: packed rows all have max_seq_len tokens: remove it, or set packing: false");
  }
  const bool wants_evaluation =
      o.eval_strategy == CadenceStrategy::kSteps || o.eval_strategy == CadenceStrategy::kEpoch;
  if (!c.evaluates() && (o.eval_steps || wants_evaluation)) {
    return InvalidArgument(fmt::format("{} is set, but there is nothing to evaluate on: add eval_data or eval_fraction",
                                       o.eval_steps ? "eval_steps" : "eval_strategy"));
  }
  for (const auto& [name, steps] : {std::pair("logging_steps", o.logging_steps),
                                    {"eval_steps", o.eval_steps.value_or(1)},
                                    {"save_steps", o.save_steps}}) {
    if (steps < 1 || steps == std::floor(steps)) continue;
    return InvalidArgument(
        fmt::format("{} is {}: give a whole number of steps, or below 1 the part of the run's steps", name, steps));
  }
  if (c.optimizer.ema_eval && c.optimizer.ema_decay == 0) {
    return InvalidArgument(
        "ema_eval evaluates the average of ema_decay, which is 0: set it, say to 0.999, or remove "
        "ema_eval");
  }
  if (c.optimizer.ema_eval && !c.evaluates()) {
    return InvalidArgument("ema_eval chooses what is evaluated: add eval_data or eval_fraction");
  }
  if (o.early_stopping_patience && !c.evaluates()) {
    return InvalidArgument("early_stopping_patience counts evaluations: add eval_data or eval_fraction");
  }
  if (o.early_stopping_threshold > 0 && !o.early_stopping_patience) {
    return InvalidArgument(
        "early_stopping_threshold has no effect without early_stopping_patience: remove it, or set the patience");
  }
  TEMPER_RETURN_IF_ERROR(BestMetricOf(c).status());
  const RunConfig::Output defaults;
  for (const auto& [name, given] :
       {std::pair("metric_for_best_model", o.metric_for_best_model != defaults.metric_for_best_model),
        {"greater_is_better", o.greater_is_better != defaults.greater_is_better}}) {
    if (!given || c.evaluates()) continue;
    return InvalidArgument(fmt::format("{} compares evaluations: add eval_data or eval_fraction", name));
  }
  if (o.load_best_model_at_end) {
    if (!c.evaluates()) {
      return InvalidArgument(
          fmt::format("load_best_model_at_end compares {}: add eval_data or eval_fraction", o.metric_for_best_model));
    }
    const bool by_steps = o.save_strategy == CadenceStrategy::kSteps;
    if (o.save_strategy == CadenceStrategy::kNo || (by_steps && o.save_steps == 0)) {
      return InvalidArgument(
          "load_best_model_at_end chooses among checkpoints: set save_steps above 0, or save_strategy: epoch");
    }
    if (EvaluationStrategy(c) != o.save_strategy) {
      return InvalidArgument(
          "load_best_model_at_end needs an evaluation at every checkpoint: eval_strategy and save_strategy should be "
          "the same");
    }
    // Whether parts of the run meet is known with its steps: CheckCadence.
    const bool whole = o.save_steps >= 1 && o.eval_steps.value_or(1) >= 1;
    if (by_steps && o.eval_steps && whole && std::fmod(o.save_steps, *o.eval_steps) != 0) {
      return InvalidArgument(
          fmt::format("load_best_model_at_end needs an evaluation at every checkpoint: save_steps ({}) should be a "
                      "multiple of eval_steps ({})",
                      o.save_steps, *o.eval_steps));
    }
  }
  if (o.resume && o.overwrite) {
    return InvalidArgument(
        "resume keeps the files in output_dir and overwrite deletes them: remove one of the two, or turn the one of a "
        "file "
        "off on the command line (--no-overwrite)");
  }
  if (o.output_dir.empty()) return OkStatus();
  std::vector<std::pair<const char*, const std::string*>> inputs = {{"model", &c.model.model},
                                                                    {"base", &c.model.base},
                                                                    {"adapter", &c.model.adapter},
                                                                    {"teacher", &c.objective.teacher}};
  for (const DataSource& source : c.data.data) inputs.emplace_back("data", &source.path);
  for (const DataSource& source : c.data.eval_data) inputs.emplace_back("eval_data", &source.path);
  for (const auto& [key, path] : inputs) {
    if (path->empty() || !IsWithin(*path, o.output_dir)) continue;
    if (o.overwrite) {
      return InvalidArgument(
          fmt::format("overwrite would delete the {} of this run: {} lies in output_dir ({}). Choose "
                      "another output_dir",
                      key, *path, o.output_dir));
    }
    if (!o.resume && IsWithin(o.output_dir, *path)) {
      return InvalidArgument(
          fmt::format("output_dir is the {} of this run ({}): choose another output_dir", key, *path));
    }
  }
  return OkStatus();
}

}  // namespace

Status Validate(const RunConfig& config, Purpose purpose) {
  RunConfig copy = config;
  TEMPER_RETURN_IF_ERROR(RunOptions(copy).CheckRanges());
  TEMPER_RETURN_IF_ERROR(CheckRequired(config, purpose));
  TEMPER_RETURN_IF_ERROR(CheckMethod(config));
  TEMPER_RETURN_IF_ERROR(CheckSchedule(config));
  TEMPER_RETURN_IF_ERROR(CheckMemory(config));
  TEMPER_RETURN_IF_ERROR(CheckRowTemplate(config.data));
  TEMPER_RETURN_IF_ERROR(CheckTask(config));
  TEMPER_RETURN_IF_ERROR(config.optimizer.settings.Check(*config.optimizer.rule));
  return CheckOutput(config);
}

}  // namespace temper
