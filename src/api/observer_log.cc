#include "api/observer_log.h"

#include "base/progress_text.h"
#include "base/utf8.h"

namespace temper {
namespace {

Observer::Level LevelOf(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return Observer::Level::kInfo;
    case LogLevel::kWarning:
      return Observer::Level::kWarning;
    case LogLevel::kError:
      break;
  }
  return Observer::Level::kError;
}

}  // namespace

template <class F>
void ObserverLog::Tell(F call) {
  if (observer_ == nullptr) return;
  const std::lock_guard lock(mutex_);
  call(*observer_);
}

void ObserverLog::Line(LogLevel level, std::string_view line) {
  Tell([&](Observer& o) { o.OnLine(LevelOf(level), utf8::Harmless(line)); });
}

void ObserverLog::Progress(const ProgressState& state, bool /*logged*/) {
  Tell([&](Observer& o) {
    o.OnProgress({.what = state.what,
                  .done = state.step,
                  .total = state.total_steps,
                  .in_bytes = state.in_bytes,
                  .seconds_left = state.eta ? std::optional(state.eta->v) : std::nullopt});
  });
}

void ObserverLog::Stepped(const StepEvent& step) {
  Reports reports;
  for (size_t k = 1; k < step.reported.size(); ++k) {
    reports.emplace_back(step.reported[k].name, step.report.reports[k]);
  }
  Tell([&](Observer& o) {
    o.OnStep({.step = step.report.step,
              .total_steps = step.total_steps,
              .epoch = step.report.epoch,
              .loss = step.report.loss,
              .reports = std::move(reports),
              .grad_norm = step.report.grad_norm,
              .learning_rate = step.report.learning_rate,
              .tokens = step.progress.tokens,
              .seconds = step.took.v,
              .seconds_left = step.left.v});
  });
}

void ObserverLog::Evaluated(const EvaluationRow& row) {
  EvaluationMetrics metrics{
      .step = row.step, .loss = row.eval_loss, .tokens = row.eval_tokens, .seconds = row.eval_seconds};
  for (const NamedNumber& report : row.reports) metrics.reports.emplace_back(report.name, report.value);
  Evaluated(metrics);
}

void ObserverLog::Evaluated(const EvaluationMetrics& metrics) {
  Tell([&](Observer& o) { o.OnEvaluation(metrics); });
}

void ObserverLog::Saved(const std::string& folder, int64_t step) {
  Tell([&](Observer& o) { o.OnCheckpoint(folder, step); });
}

}  // namespace temper
