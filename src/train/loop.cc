#include "train/loop.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "base/quantity.h"
#include "train/evaluation_progress.h"

namespace temper {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double WallClock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

bool TrainingLoop::EvaluationDue() const {
  return p_.evaluator && at_.evaluation && (last() || at_.evaluation->Due(progress_.step, EpochEnds()));
}

bool TrainingLoop::SaveDue() const {
  return over() || at_.saving.Due(progress_.step, EpochEnds());
}

bool TrainingLoop::EpochEnds() const {
  const Sampler& sampler = p_.trainer.sampler();
  return sampler.state().next_row == sampler.rows_of_epoch();
}

// This step's evaluation and save are still to come.
Seconds TrainingLoop::Remaining() {
  const int64_t from = progress_.step, to = p_.total_steps;
  if (const auto whole = p_.saver.LastTime()) time_left_.SavedWhole(*whole);
  // What comes at the end is not counted twice.
  const auto times = [&](const Cadence& at) { return at.Times(from, to - 1, p_.steps_per_epoch) + 1; };
  const bool evaluates = p_.evaluator && at_.evaluation;
  return time_left_.Of(
      {.steps = to - from, .evaluations = evaluates ? times(*at_.evaluation) : 0, .saves = times(at_.saving)});
}

Result<LoopEnd> TrainingLoop::Run() {
  const Executor::BeforeUpdate before_update = [this] {
    const double begin = Now();
    Status read = p_.saver.WaitUntilRead();
    waited_ = Now() - begin;
    return read;
  };
  // A run that was stopped before a due evaluation catches up on it, so
  // that the next checkpoint has it, as in a run that was never stopped.
  if (progress_.step > 0 && EvaluationDue() && !progress_.eval_loss) {
    TEMPER_RETURN_IF_ERROR(Evaluate());
    if (progress_.eval_loss && SaveDue()) TEMPER_RETURN_IF_ERROR(Save());
  }
  TEMPER_ASSIGN_OR_RETURN(bool stopping, p_.peers.Any(Asked()));
  while (!over() && !stopping) {
    TEMPER_ASSIGN_OR_RETURN(const StepReport report, Step(before_update));
    if (stops_diverged()) {
      if (progress_.unlogged_steps > 0) TEMPER_RETURN_IF_ERROR(Log(report, /*due=*/true));
      TEMPER_RETURN_IF_ERROR(p_.saver.Finish());
      p_.display.Finish();
      return LoopEnd::kDiverged;
    }
    WarnOfDivergence();
    if (EvaluationDue()) TEMPER_RETURN_IF_ERROR(Evaluate());
    if (stops_early() && progress_.unlogged_steps > 0) TEMPER_RETURN_IF_ERROR(Log(report, /*due=*/true));
    TEMPER_ASSIGN_OR_RETURN(stopping, p_.peers.Any(Asked()));
    if (stopping && !p_.stop_is_told) LogInfo(fmt::format("stopping: saving step {}", progress_.step));
    if (stopping || SaveDue()) TEMPER_RETURN_IF_ERROR(Save());
  }
  TEMPER_RETURN_IF_ERROR(p_.saver.Finish());
  p_.display.Finish();
  if (stops_early()) {
    const BestEvaluation& best = progress_.best;
    LogInfo(fmt::format(
        "early stop  after step {}: {} in a row did not {} {} by more than {}; the best was {:.4f} at step "
        "{}",
        progress_.step, Counted(best.without_gain, "evaluation"), best.by.greater_is_better ? "raise" : "lower",
        best.by.shown(), p_.config.output.early_stopping_threshold, *best.value, best.step));
  }
  const bool complete = over() && (!EvaluationDue() || progress_.eval_loss);
  return complete ? LoopEnd::kDone : LoopEnd::kStopped;
}

Result<StepReport> TrainingLoop::Step(const Executor::BeforeUpdate& before_update) {
  const double begin = Now();
  const Result<StepReport> stepped = p_.trainer.Step(before_update);
  if (!stepped.ok()) return WithLossBefore(stepped.status());
  const StepReport& report = *stepped;
  const double seconds = Now() - begin;
  time_left_.Stepped(Seconds{seconds}, Seconds{std::exchange(waited_, 0)});
  progress_.step = report.step;
  progress_.sampler = p_.trainer.sampler().state();
  progress_.tokens += report.tokens;
  progress_.seconds += seconds;
  progress_.eval_loss.reset();
  progress_.judged.reset();
  progress_.divergence.Take(report.loss, report.learning_rate);
  progress_.unlogged_loss += report.loss;
  for (size_t k = 1; k < report.reports.size(); ++k) progress_.unlogged_reports[k] += report.reports[k];
  ++progress_.unlogged_steps;
  window_seconds_ += seconds;
  window_flops_ += p_.model_flops(report).v;
  window_tokens_ += report.tokens;
  TEMPER_RETURN_IF_ERROR(Log(report, last() || at_.logging.Due(report.step, EpochEnds())));
  if (p_.events)
    p_.events->Stepped({.report = report,
                        .reported = p_.trainer.reported(),
                        .progress = progress_,
                        .total_steps = p_.total_steps,
                        .took = Seconds{seconds},
                        .left = Remaining()});
  return report;
}

Status TrainingLoop::WithLossBefore(const Status& failed) const {
  const std::vector<double>& start = progress_.divergence.start;
  if (failed.code() != StatusCode::kNumerical || start.empty() || !shown_ || !shown_->loss) return failed;
  const double first = start.front(), last = *shown_->loss;
  if (last <= 1.1 * first) return failed;
  return Status(failed.code(), fmt::format("{}. The loss had risen before, from {:.4g} to {:.4g}: most likely "
                                           "learning_rate (now {}) is too high, or the warmup too short; checkpoints "
                                           "from after that are finite, but worse than the start",
                                           failed.message(), first, last, *p_.config.optimizer.learning_rate));
}

Status TrainingLoop::Log(const StepReport& report, bool due) {
  const double per_second = window_seconds_ > 0 ? static_cast<double>(window_tokens_) / window_seconds_ : 0;
  std::optional<double> mfu;
  if (p_.peak_flops_per_second > 0 && window_seconds_ > 0)
    mfu = window_flops_ / window_seconds_ / p_.peak_flops_per_second;
  if (mfu > 1) mfu.reset();  // the peak was measured while the machine was busy: it is unknown
  const auto steps = static_cast<double>(progress_.unlogged_steps);
  const double loss = progress_.unlogged_loss / steps;
  const std::span<const ReportSpec> specs = p_.trainer.reported();
  std::vector<NamedNumber> reports;  // beside the loss
  for (size_t k = 1; k < specs.size(); ++k) reports.push_back({specs[k].name, progress_.unlogged_reports[k] / steps});
  shown_ = {.step = report.step,
            .total_steps = p_.total_steps,
            .epoch = report.epoch,
            .loss = loss,
            .grad_norm = report.grad_norm,
            .learning_rate = report.learning_rate,
            .reports = reports,
            .tokens_per_second = per_second,
            .mfu = mfu,
            .memory = p_.device_peak,
            .eta = Remaining()};
  p_.display.Update(*shown_, due);
  if (!due) return OkStatus();
  std::vector<RankRow> ranks;
  if (p_.utilisation) {
    TEMPER_ASSIGN_OR_RETURN(ranks, p_.utilisation->SinceLast(window_seconds_, p_.peers));
  }
  const TrainingRow row{.step = report.step,
                        .epoch = report.epoch,
                        .loss = loss,
                        .reports = reports,
                        .grad_norm = report.grad_norm,
                        .learning_rate = report.learning_rate,
                        .tokens = progress_.tokens,
                        .tokens_per_second = per_second,
                        .mfu = mfu,
                        .device_peak_bytes = p_.device_peak.v,
                        .tiers = p_.tiers,
                        .seconds = progress_.seconds,
                        .ranks = std::move(ranks)};
  if (p_.metrics) TEMPER_RETURN_IF_ERROR(p_.metrics->Write(row));
  if (p_.tensorboard) {
    const double now = WallClock();
    std::vector<NamedNumber> scalars = {{"loss", row.loss},
                                        {"grad_norm", row.grad_norm},
                                        {"learning_rate", row.learning_rate},
                                        {"tokens_per_second", row.tokens_per_second}};
    scalars.insert(scalars.end(), reports.begin(), reports.end());
    for (const auto& [name, value] : scalars) {
      // The log is not essential: the run continues without it.
      const Status s = p_.tensorboard->AddScalar(std::string(name), row.step, value, now);
      if (!s.ok()) LogWarning(s.message());
    }
  }
  progress_.unlogged_loss = 0;
  progress_.unlogged_reports = {};
  progress_.unlogged_steps = 0;
  window_seconds_ = window_flops_ = 0;
  window_tokens_ = 0;
  return OkStatus();
}

void TrainingLoop::WarnOfDivergence() const {
  if (!progress_.divergence.WarningDue()) return;
  LogWarning(
      fmt::format("step {}: the run diverges: {}. Lower learning_rate (now {}) or lengthen the warmup; "
                  "--stop_on_divergence ends such a run",
                  progress_.step, progress_.divergence.Describe(progress_.step), *p_.config.optimizer.learning_rate));
}

Result<EvaluationReport> TrainingLoop::RunEvaluator() {
  EvaluationProgress shown(p_.display);
  const auto run = [&] {
    return p_.evaluator->Run([this] { return Asked(); }, [&](int64_t done, int64_t rows) { shown.Update(done, rows); });
  };
  if (!p_.exchange_averages) return run();
  TEMPER_RETURN_IF_ERROR(p_.saver.WaitUntilRead());
  TEMPER_RETURN_IF_ERROR(p_.exchange_averages());
  Result<EvaluationReport> evaluated = run();
  TEMPER_RETURN_IF_ERROR(p_.exchange_averages());
  return evaluated;
}

Status TrainingLoop::Evaluate() {
  const double begin = Now();
  const Result<EvaluationReport> evaluated = RunEvaluator();
  if (evaluated.status().code() == StatusCode::kInterrupted) return OkStatus();
  TEMPER_RETURN_IF_ERROR(evaluated.status());
  const EvaluationReport& report = *evaluated;
  time_left_.Evaluated(Seconds{Now() - begin});
  progress_.eval_loss = report.loss;
  const std::span<const ReportSpec> specs = p_.config.objective.rule->reports;
  std::vector<NamedNumber> reports;  // beside the loss
  for (size_t k = 1; k < specs.size(); ++k) reports.push_back({specs[k].name, report.reports[k]});
  reports.insert(reports.end(), report.of_classes.begin(), report.of_classes.end());
  double judged = report.loss;
  for (const auto& [name, value] : reports) {
    if (name == progress_.best.by.name) judged = value;
  }
  progress_.judged = judged;
  progress_.best.Take(judged, progress_.step, p_.config.output.early_stopping_threshold);
  std::string shown_reports;
  for (const auto& [name, value] : reports) shown_reports += fmt::format("  eval_{} {:.4g}", name, value);
  LogInfo(fmt::format("step {}  eval_loss {:.4f}{}  ({} tokens, {}, {} rows/s, {} tokens/s)", progress_.step,
                      report.loss, shown_reports, report.tokens, ToString(report.time),
                      Grouped(report.rows_per_second()), Grouped(report.tokens_per_second())));
  if (p_.tensorboard) {
    std::vector<NamedNumber> scalars = {{"loss", report.loss}};
    scalars.insert(scalars.end(), reports.begin(), reports.end());
    for (const auto& [name, value] : scalars) {
      const Status s = p_.tensorboard->AddScalar(fmt::format("eval_{}", name), progress_.step, value, WallClock());
      if (!s.ok()) LogWarning(s.message());
    }
  }
  const EvaluationRow row{.step = progress_.step,
                          .epoch = p_.trainer.sampler().epochs_done(),
                          .eval_loss = report.loss,
                          .reports = std::move(reports),
                          .eval_tokens = report.tokens,
                          .eval_seconds = report.time.v};
  if (p_.metrics) TEMPER_RETURN_IF_ERROR(p_.metrics->Write(row));
  if (p_.events) p_.events->Evaluated(row);
  if (shown_) p_.display.Update(*shown_, /*logged=*/false);  // the bar is the training's again
  return OkStatus();
}

Status TrainingLoop::Save() {
  const double begin = Now();
  if (p_.metrics) TEMPER_RETURN_IF_ERROR(p_.metrics->Sync());
  TEMPER_RETURN_IF_ERROR(p_.saver.Save(progress_));
  time_left_.Saved(Seconds{Now() - begin});
  return OkStatus();
}

}  // namespace temper
