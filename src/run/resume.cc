#include "run/resume.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/log.h"
#include "base/quantity.h"
#include "checkpoint/base_digest.h"
#include "checkpoint/training_state.h"
#include "config/run_options.h"
#include "config/validate.h"
#include "data/template/jinja.h"
#include "format/quoted.h"
#include "run/products_of_run.h"
#include "run/rates_of_run.h"
#include "run/saver.h"
#include "settings/best_metric.h"

namespace temper {
namespace {

int64_t RowsPerStep(const RunConfig& c, int64_t data_ranks) {
  return c.batch.per_device_train_batch_size * c.batch.gradient_accumulation_steps * data_ranks;
}

}  // namespace

Result<ResumePoint> ResumePoint::Open(Env& env, const std::string& checkpoint) {
  TEMPER_ASSIGN_OR_RETURN(CheckpointReader reader, CheckpointReader::Open(env, checkpoint));
  TEMPER_ASSIGN_OR_RETURN(const std::string yaml, reader.ReadText(kRunConfigFile));
  TEMPER_ASSIGN_OR_RETURN(RunConfig config, ParseRunConfig(yaml, JoinPath(checkpoint, kRunConfigFile)));
  return ResumePoint(std::move(reader), std::move(config));
}

KeptDecisions ResumePoint::decisions() const {
  KeptDecisions kept;
  for (const auto& [what, chosen] : reader_.manifest().identity.decisions.items()) {
    if (chosen.is_string()) kept[what] = chosen.get<std::string>();
  }
  return kept;
}

bool ResumePoint::Has(std::string_view file) const {
  const auto& files = reader_.manifest().files;
  return std::any_of(files.begin(), files.end(), [&](const auto& f) { return f.name == file; });
}

Result<std::optional<std::string>> ResumePoint::rates() const {
  if (!Has(kRatesFile)) return std::optional<std::string>();
  TEMPER_ASSIGN_OR_RETURN(std::string text, reader_.ReadText(kRatesFile));
  return std::optional(std::move(text));
}

Result<ProductChoices> ResumePoint::products() const {
  if (!Has(kProductsFile)) return ProductChoices();
  TEMPER_ASSIGN_OR_RETURN(const std::string text, reader_.ReadText(kProductsFile));
  return ParseProducts(text);
}

void ResumePoint::KeepChoices(RunConfig& config) const {
  if (config.model.dtype == ComputeType::kAuto) config.model.dtype = config_.model.dtype;
  if (!config.data.max_seq_len) config.data.max_seq_len = config_.data.max_seq_len;
  if (config.data.template_date.empty()) config.data.template_date = config_.data.template_date;
  if (config.data.chat_template.empty()) config.data.chat_template = config_.data.chat_template;
  // Of the row template the checkpoint has only the name; its text is compared with the data. One of another kind that
  // is given instead is a change, which CheckData names.
  RunConfig::Data with_template = config.data;
  if (with_template.row_template.empty()) with_template.row_template = config_.data.row_template;
  if (CheckRowTemplate(with_template).ok()) config.data.row_template = with_template.row_template;
  if (!config.optimizer.learning_rate) config.optimizer.learning_rate = config_.optimizer.learning_rate;
}

std::string ResumePoint::templates_of() const {
  return Has(kChatTemplateFile) ? path() : "";
}

Status ResumePoint::CheckTemplate(Env& env, const OpenedModel& model) const {
  // A checkpoint of a full run has the base's template where no other was chosen, an adapter's has not.
  TEMPER_ASSIGN_OR_RETURN(auto saved, ChatTemplate::SourcesIn(env, path()));
  std::optional<TemplateSources> now = model.added_templates();
  if (!saved || !now) {
    TEMPER_ASSIGN_OR_RETURN(const auto own, model.OwnTemplates());
    if (!saved) saved = own;
    if (!now) now = own;
  }
  if (saved.has_value() == now.has_value() && (!now || HaveSameTexts(*now, *saved))) return OkStatus();
  return InvalidArgument(
      fmt::format("{0} was trained with another chat template. Leave out --chat_template to go on with that one, or "
                  "start a new run from it with --model {0}",
                  ShellWord(path())));
}

Status ResumePoint::CheckSettings(const RunConfig& resolved) const {
  const std::string& optimizer = reader_.manifest().optimizer;
  const std::string_view now = resolved.optimizer.rule->name;
  if (optimizer != now) {
    return InvalidArgument(
        fmt::format("{0} was trained with optimizer: {1}, whose states {2} cannot use: resume with optimizer: {1}, or "
                    "start a new run from it with --model {0}",
                    ShellWord(path()), optimizer, now));
  }
  auto changed = Differences(config_, resolved, OnResume::kSame);
  const UpdateRule& rule = *resolved.optimizer.rule;
  const auto states = [&](const RunConfig& c) { return rule.StatesOf(c.optimizer.settings.Of(rule)); };
  if (states(config_) != states(resolved)) {
    for (OptionDifference& d : Differences(config_, resolved, OnResume::kGoesOn)) {
      if (std::any_of(rule.settings.begin(), rule.settings.end(), [&](const auto& s) { return s.option == d.name; })) {
        changed.push_back(std::move(d));
      }
    }
  }
  if (changed.empty()) return OkStatus();
  std::string settings;
  for (const OptionDifference& d : changed) {
    settings += fmt::format("{}{} {} (now {})", settings.empty() ? "" : ", ", d.name, d.a, d.b);
  }
  return InvalidArgument(fmt::format(
      "{0} was trained with other settings: {1}. Resume with the same (they are in its run.yaml), or start a "
      "new run from it with --model {0}",
      ShellWord(path()), settings));
}

namespace {

// The numbers of ranks among which a step's rows can be dealt, so many at once to each: "1, 2, 4".
std::string RanksFor(int64_t rows, int64_t at_once) {
  std::string text;
  for (int64_t ranks = 1; ranks <= rows; ++ranks) {
    if (rows % (ranks * at_once) == 0) text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks);
  }
  return text;
}

}  // namespace

Result<int64_t> ResumePoint::AccumulationFor(const RunConfig& resolved, int64_t data_ranks) const {
  TEMPER_ASSIGN_OR_RETURN(const SavedBatch batch, SavedBatchOf(state()));
  const RunConfig::Batch& saved = config_.batch;
  const int64_t wanted = resolved.batch.gradient_accumulation_steps;
  const int64_t rows = RowsPerStep(config_, batch.data_ranks);
  if (RowsPerStep(resolved, data_ranks) == rows) return wanted;
  if (resolved.batch.per_device_train_batch_size != saved.per_device_train_batch_size) return wanted;
  if (wanted != saved.gradient_accumulation_steps && wanted != batch.asked_accumulation) return wanted;
  if (data_ranks == batch.data_ranks) return saved.gradient_accumulation_steps;
  const int64_t at_once = saved.per_device_train_batch_size * data_ranks;
  if (rows % at_once == 0) return rows / at_once;
  return InvalidArgument(fmt::format(
      "{}: a step has {} rows (per_device_train_batch_size {} x gradient_accumulation_steps {} x {} with rows of {} "
      "own), which micro-batches of {} rows (per_device_train_batch_size {} x {}) do not divide. Numbers of ranks that "
      "do: {}. Or set another gradient_accumulation_steps, for steps of another size",
      path(), rows, saved.per_device_train_batch_size, saved.gradient_accumulation_steps,
      Counted(batch.data_ranks, "rank"), batch.data_ranks == 1 ? "its" : "their", at_once,
      saved.per_device_train_batch_size, Counted(data_ranks, "rank"),
      RanksFor(rows, saved.per_device_train_batch_size)));
}

Result<std::optional<int64_t>> ResumePoint::AskedAccumulation(const RunConfig& resolved, int64_t data_ranks) const {
  TEMPER_ASSIGN_OR_RETURN(const SavedBatch before, SavedBatchOf(state()));
  const bool same = RowsPerStep(resolved, data_ranks) == RowsPerStep(config_, before.data_ranks);
  return same ? before.asked_accumulation : std::nullopt;
}

Status ResumePoint::KeepCut(int64_t data_ranks, RunConfig* config) const {
  RunConfig::Batch& batch = config->batch;
  if (!batch.auto_cut) return OkStatus();
  TEMPER_ASSIGN_OR_RETURN(const SavedBatch before, SavedBatchOf(state()));
  const RunConfig::Batch& saved = config_.batch;
  const int64_t asked = batch.gradient_accumulation_steps, rows = RowsPerStep(config_, before.data_ranks);
  const bool same =
      asked == before.asked_accumulation || asked * before.data_ranks == rows || asked * data_ranks == rows;
  if (!same) return OkStatus();
  if (data_ranks == before.data_ranks) {
    batch.auto_cut = false;
    batch.per_device_train_batch_size = saved.per_device_train_batch_size;
    batch.gradient_accumulation_steps = saved.gradient_accumulation_steps;
    if (!batch.per_device_eval_batch_size) batch.per_device_eval_batch_size = saved.per_device_eval_batch_size;
    return OkStatus();
  }
  if (rows % data_ranks != 0) {
    return InvalidArgument(fmt::format(
        "{}: a step has {}, which {} do not divide. Numbers of ranks that do: {}. Or set another "
        "gradient_accumulation_steps, for steps of another size",
        path(), Counted(rows, "row"), Counted(data_ranks, "rank with rows of its own", "ranks with rows of their own"),
        RanksFor(rows, /*at_once=*/1)));
  }
  batch.gradient_accumulation_steps = rows / data_ranks;
  return OkStatus();
}

Result<std::vector<std::string>> ResumePoint::DescribeChanges(const SettledRun& now, int64_t rows_per_epoch) const {
  TEMPER_ASSIGN_OR_RETURN(const SavedBatch batch, SavedBatchOf(state()));
  const SettledRun before = {config_, state().total_steps, RowsPerStep(config_, batch.data_ranks)};
  return DescribeTrainOn(state(), rows_per_epoch, before, now);
}

Status ResumePoint::CheckData(const std::string& fingerprint, const RunConfig& resolved) const {
  const std::string& saved = reader_.manifest().state.data_fingerprint;
  if (saved == fingerprint) return OkStatus();
  if (!saved.starts_with("xxh3:")) {
    LogWarning(fmt::format("{}: saved by an older Temper: whether the data is still the same is not checked", path()));
    return OkStatus();
  }
  const std::string &before = config_.data.row_template, &now = resolved.data.row_template;
  std::string what = "chat template";
  if (before != now) {
    const auto shown = [](const std::string& file) {
      return file.empty() ? "none" : IsTemplateText(file) ? "a text" : ShellWord(file);
    };
    what = fmt::format("--row_template, then {} and now {},", shown(before), shown(now));
  } else if (!now.empty()) {
    what = IsTemplateText(now) ? "row_template" : "--row_template " + ShellWord(now);
  }
  return InvalidArgument(
      fmt::format("{}: the data is not what this run was trained on so far: {} has changed (or the tokenizer or "
                  "{} has). Restore it, or start a new run from the checkpoint with --model {}",
                  path(), PathsOf(resolved.data.data), what, ShellWord(path())));
}

Status ResumePoint::CheckBase(const ModelWeights& base) const {
  if (!Has(kBaseFile)) return OkStatus();  // of an older Temper
  TEMPER_ASSIGN_OR_RETURN(const std::string text, reader_.ReadText(kBaseFile));
  const Status same = temper::CheckBase(text, JoinPath(path(), kBaseFile), base);
  if (same.code() != StatusCode::kInvalidArgument) return same;
  return InvalidArgument(fmt::format(
      "{}. Resume with --model and that folder, or NAME@REVISION of the cache, or start a new run", same.message()));
}

Result<RunProgress> ResumePoint::ProgressFor(const RunConfig& resolved, const std::string& eval_fingerprint) const {
  TEMPER_ASSIGN_OR_RETURN(RunProgress progress, ProgressOf(state(), reader_.manifest().seconds));
  // Another Program may have another loss for the same weights (dropout, smoothing, rows of a step); other settings may
  // be against the divergence.
  if (!Differences(config_, resolved, OnResume::kGoesOnWithAnotherProgram).empty()) {
    progress.divergence = {};
  } else if (!Differences(config_, resolved, OnResume::kGoesOn).empty()) {
    progress.divergence.above = 0;
  }
  // Reports that a step did not make have no mean over the steps before the next row.
  if (config_.output.token_accuracy != resolved.output.token_accuracy) {
    progress.unlogged_loss = 0;
    progress.unlogged_reports = {};
    progress.unlogged_steps = 0;
  }
  const double smoothing = config_.regularisation.label_smoothing_factor;
  // An older Temper saved no fingerprint.
  const bool other_data = !state().eval_fingerprint.empty() && state().eval_fingerprint != eval_fingerprint;
  const bool other_smoothing = smoothing != resolved.regularisation.label_smoothing_factor;
  TEMPER_ASSIGN_OR_RETURN(const BestMetric metric, BestMetricOf(resolved));
  const BestEvaluation& best = progress.best;
  if (other_data || other_smoothing || best.by != metric) {
    if (best.value) {
      LogInfo(fmt::format(
          "changed     the best {} so far, {:.4g} at step {}, and the count of early_stopping_patience "
          "start anew: {}",
          best.by.shown(), *best.value, best.step,
          other_data                    ? "it was measured on other data"
          : other_smoothing             ? fmt::format("it was measured with label_smoothing_factor {}", smoothing)
          : best.by.name == metric.name ? fmt::format("{} is compared in the other direction", metric.shown())
                                        : fmt::format("evaluations are compared by {} now", metric.shown())));
      progress.eval_loss.reset();
      progress.judged.reset();
    }
    progress.best = {.by = metric};
  }
  return progress;
}

Result<RunProgress> ResumePoint::Restore(const RunIdentity& now, const RunConfig& resolved,
                                         const std::string& eval_fingerprint, const CompiledRun& run,
                                         const BufferLookup& buffer,
                                         const std::function<void(Bytes, Bytes)>& progress) const {
  const Manifest& saved = reader_.manifest();
  RunIdentity same_settings = now;
  const bool other_step = !Differences(config_, resolved, OnResume::kGoesOnWithAnotherProgram).empty();
  if (other_step) same_settings.program_hash = saved.identity.program_hash;
  const bool other_batch = config_.batch.per_device_eval_batch_size != resolved.batch.per_device_eval_batch_size;
  if (other_step) same_settings.other_programs = saved.identity.other_programs;
  for (auto& [name, hash] : same_settings.other_programs) {
    // The user asks for another batch of evaluations; what a reference has said of the data is kept.
    const bool idle = name == ProgramName(ProgramKind::kReference) && !resolved.objective.rule->rated;
    const bool asked = name.starts_with(ProgramName(ProgramKind::kEval)) && other_batch;
    const auto before = saved.identity.other_programs.find(name);
    if ((idle || asked) && before != saved.identity.other_programs.end()) hash = before->second;
  }
  if (const std::string differences = DescribeDifferences(saved.identity, same_settings); !differences.empty()) {
    LogWarning(
        fmt::format("the run continues in another environment ({}): results will not be bit-identical to a run that "
                    "was never stopped",
                    differences));
  }
  TEMPER_RETURN_IF_ERROR(RestoreTrainingState(reader_, run.train(), buffer, run.stored, progress, run.trained));
  return ProgressFor(resolved, eval_fingerprint);
}

}  // namespace temper
