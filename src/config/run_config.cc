#include "config/run_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "base/quantity.h"
#include "config/run_options.h"

namespace temper {
namespace {

// The lengths and rates that people expect where they say nothing (docs of transformers and PEFT, and experience).
constexpr int64_t kDefaultMaxSeqLen = 2048;
constexpr double kLoraLearningRate = 2e-4;
constexpr double kFullLearningRate = 2e-5;
constexpr double kWarmupRatio = 0.03;
constexpr int64_t kFewestUsefulSteps = 20;

// By text alone: whoever deletes must see to links.
bool IsWithin(const std::string& path, const std::string& folder) {
  const auto normal = [](const std::string& p) {
    std::error_code no_working_folder;
    const std::filesystem::path whole = std::filesystem::absolute(p, no_working_folder);
    std::string text = (no_working_folder ? std::filesystem::path(p) : whole).lexically_normal().string();
    while (text.size() > 1 && text.back() == '/') text.pop_back();
    return text;
  };
  const std::string inner = normal(path), outer = normal(folder);
  return inner == outer || inner.starts_with(outer == "/" ? outer : outer + "/");
}

Status CheckRequired(const RunConfig& c, Purpose purpose) {
  const auto missing = [](const char* what, const char* key, const char* value) {
    return InvalidArgument(
        fmt::format("no {} given: add --{} {}, or '{}: {}' in the YAML file", what, key, value, key, value));
  };
  if (c.model.model.empty()) return missing("model", "model", "FOLDER");
  if (purpose == Purpose::kPlan) return OkStatus();
  if (c.data.data.empty()) return missing("training data", "data", "FILE");
  if (c.output.output_dir.empty()) return missing("output folder", "output_dir", "FOLDER");
  return OkStatus();
}

Status CheckMethod(const RunConfig& c) {
  const RunConfig::Model& m = c.model;
  if (m.method == TrainMethod::kLora) {
    if (m.from_scratch) {
      return InvalidArgument("from_scratch trains every weight, but method is lora: add method: full");
    }
    const auto* names = std::get_if<std::vector<std::string>>(&c.lora.target_modules);
    if (names ? names->empty() : std::get<std::string>(c.lora.target_modules).empty()) {
      return InvalidArgument("lora.target_modules is empty: nothing would be trained. Use all-linear, or name modules");
    }
    return OkStatus();
  }
  if (!m.adapter.empty()) {
    return InvalidArgument(
        "adapter is to be trained on, but method is full: remove adapter, or set method: lora. To "
        "train every weight of the merged model, run temper export first");
  }
  if (c.lora != RunConfig::Lora()) {
    return InvalidArgument("lora.* is set, but method is full: remove the lora section, or set method: lora");
  }
  return OkStatus();
}

Status CheckMemory(const RunConfig& c) {
  const Recompute recompute = c.machine.recompute;
  if (c.machine.recompute_blocks && (recompute == Recompute::kNone || recompute == Recompute::kAuto)) {
    return InvalidArgument(
        fmt::format("memory.recompute_blocks says which blocks compute again, but memory.recompute is {}: set it to "
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
  const bool cosine = kind == Kind::kCosine || kind == Kind::kCosineWithMinLr || stable_decay;
  const RunConfig::SchedulerKwargs defaults;
  const std::pair<bool, const char*> without_effect[] = {
      {k.num_cycles && !cosine, "num_cycles"},
      {k.min_lr && kind != Kind::kCosineWithMinLr, "min_lr"},
      {k.min_lr_rate && kind != Kind::kCosineWithMinLr, "min_lr_rate"},
      {k.min_lr_ratio && !stable_decay, "min_lr_ratio"},
      {k.num_decay_steps && !stable_decay, "num_decay_steps"},
      {k.num_stable_steps && !stable_decay, "num_stable_steps"},
      {k.warmup_type != defaults.warmup_type && !stable_decay, "warmup_type"},
      {k.decay_type != defaults.decay_type && !stable_decay, "decay_type"},
  };
  for (const auto& [wrong, key] : without_effect) {
    if (!wrong) continue;
    const std::string_view taker =
        std::string_view(key).starts_with("min_lr") && std::string_view(key) != "min_lr_ratio" ? "cosine_with_min_lr"
        : std::string_view(key) == "num_cycles"                                                ? "cosine"
                                                                                               : "warmup_stable_decay";
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

Status CheckOutput(const RunConfig& c) {
  const RunConfig::Output& o = c.output;
  if (!c.data.eval_data.empty() && c.data.eval_fraction > 0) {
    return InvalidArgument(
        "both eval_data and eval_fraction are set: evaluation takes its rows from one of them, remove the other");
  }
  if (!c.evaluates() && o.eval_steps) {
    return InvalidArgument("eval_steps is set, but there is nothing to evaluate on: add eval_data or eval_fraction");
  }
  if (o.load_best_model_at_end) {
    if (!c.evaluates()) {
      return InvalidArgument("load_best_model_at_end compares eval_loss: add eval_data or eval_fraction");
    }
    if (o.save_steps == 0) {
      return InvalidArgument("load_best_model_at_end chooses among checkpoints: set save_steps above 0");
    }
    if (o.eval_steps && o.save_steps % *o.eval_steps != 0) {
      return InvalidArgument(
          fmt::format("load_best_model_at_end needs an evaluation at every checkpoint: save_steps ({}) should be a "
                      "multiple of eval_steps ({})",
                      o.save_steps, *o.eval_steps));
    }
  }
  if (o.resume && o.overwrite) {
    return InvalidArgument("resume keeps what is in output_dir and overwrite deletes it: remove one of them");
  }
  if (o.output_dir.empty()) return OkStatus();
  const std::pair<const char*, const std::string*> inputs[] = {{"model", &c.model.model},
                                                               {"base", &c.model.base},
                                                               {"adapter", &c.model.adapter},
                                                               {"data", &c.data.data},
                                                               {"eval_data", &c.data.eval_data}};
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

// ---- Resolve -----------------------------------------------------------------------------------------------------

void ResolveType(const RunFacts& facts, ResolvedRun& run) {
  ComputeType& dtype = run.config.model.dtype;
  if (dtype == ComputeType::kAuto) {
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
    run.notes["max_seq_len"] = most && *most <= kDefaultMaxSeqLen ? "all that the model has positions for" : "default";
  } else if (most && *rows > *most) {
    const std::string what = fmt::format("max_seq_len {} is more than the model's {} positions", *rows, *most);
    if (facts.positions_are_learned) {
      return InvalidArgument(fmt::format("{}: it has no embedding for the rest. Set max_seq_len: {}", what, *most));
    }
    run.warnings.push_back(what + ": it was not trained that far");
  }
  return OkStatus();
}

Status ResolveAdapter(const RunFacts& facts, ResolvedRun& run) {
  RunConfig::Lora& lora = run.config.lora;
  if (!facts.adapter) return OkStatus();
  const RunConfig::Model& m = run.config.model;
  if (m.method == TrainMethod::kFull) {
    return InvalidArgument(
        fmt::format("model {} is an adapter, but method is full: merge it first (temper export --model {} --output_dir "
                    "MERGED) and train MERGED, or go on training the adapter with method: lora",
                    m.model, m.model));
  }
  if (lora == *facts.adapter) return OkStatus();
  // Dropout is no property of the trained weights: it may change from run to run.
  RunConfig::Lora wanted = lora, theirs = *facts.adapter;
  wanted.dropout = theirs.dropout = 0;
  if (wanted != RunConfig::Lora() && wanted != theirs) {
    return InvalidArgument(fmt::format(
        "lora.* differs from what the adapter {} was made with (r {}, alpha {}): remove the lora section to "
        "go on with it, or give its base model instead to start a new one",
        m.adapter.empty() ? m.model : m.adapter, theirs.r, theirs.alpha));
  }
  const double dropout = lora.dropout;
  lora = *facts.adapter;
  lora.dropout = dropout;
  run.notes["lora.r"] = "of the adapter to go on from";
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
  return CheckOutput(config);
}

int64_t DefaultMaxSeqLen(int64_t positions) {
  return std::min(kDefaultMaxSeqLen, positions);
}

Result<ResolvedRun> Resolve(const RunConfig& config, const RunFacts& facts) {
  ResolvedRun run;
  run.config = config;
  RunConfig& c = run.config;
  ResolveType(facts, run);
  if (c.machine.device == DeviceChoice::kAuto) {
    c.machine.device = facts.device;
    if (facts.device == DeviceChoice::kGpu) run.notes["device"] = facts.processor + " was found";
  }
  TEMPER_RETURN_IF_ERROR(ResolveRows(facts, run));
  TEMPER_RETURN_IF_ERROR(ResolveAdapter(facts, run));
  if (c.data.template_date.empty()) c.data.template_date = facts.today;
  c.data.weighted = c.data.weighted || facts.weighted_data;
  if (!c.optimizer.learning_rate) {
    const bool lora = c.model.method == TrainMethod::kLora;
    c.optimizer.learning_rate = lora ? kLoraLearningRate : kFullLearningRate;
    run.notes["learning_rate"] = lora ? "default of method lora" : "default of method full";
  }
  if (c.length.max_steps == -1) c.length.max_steps.reset();  // as transformers writes "not set"
  if (!c.length.warmup_ratio && !c.length.warmup_steps) {
    c.length.warmup_ratio = c.length.lr_scheduler_type == ScheduleKind::kConstant ? 0 : kWarmupRatio;
  }
  if (!c.batch.per_device_eval_batch_size) c.batch.per_device_eval_batch_size = c.batch.per_device_train_batch_size;
  if (!c.output.eval_steps && c.evaluates() && c.output.save_steps > 0) {
    c.output.eval_steps = c.output.save_steps;
    run.notes["eval_steps"] = "at every checkpoint";
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
  s.num_cycles = k.num_cycles.value_or(s.num_cycles);
  s.min_lr_rate = k.min_lr_ratio.value_or(k.min_lr_rate.value_or(0));
  // A peak of 0 has no parts; its floor is 0 as well.
  if (k.min_lr && s.learning_rate > 0) s.min_lr_rate = *k.min_lr / s.learning_rate;
  s.decay_steps = k.num_decay_steps.value_or(0);
  s.stable_steps = k.num_stable_steps;
  s.warmup_shape = k.warmup_type;
  s.decay_shape = k.decay_type;
  TEMPER_RETURN_IF_ERROR(s.Check());
  return s;
}

std::optional<std::string> ShortRunWarning(const RunConfig& config, int64_t total_steps) {
  if (total_steps >= kFewestUsefulSteps) return std::nullopt;
  const int64_t accumulation = config.batch.gradient_accumulation_steps;
  const char* const longer = config.length.max_steps ? "raise max_steps" : "raise num_train_epochs";
  return fmt::format("the run has only {}, too few to learn much: {}{}", Counted(total_steps, "optimizer step"),
                     accumulation > 1 && !config.length.max_steps
                         ? fmt::format("lower gradient_accumulation_steps (now {}), or ", accumulation)
                         : "",
                     longer);
}

}  // namespace temper
