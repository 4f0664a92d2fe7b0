#include "train/loop.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace temper {
namespace {

volatile sig_atomic_t stop_signal = 0;

extern "C" void HandleStop(int signal) {
  if (stop_signal != 0) _exit(128 + signal);
  stop_signal = signal;
}

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double WallClock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

bool Due(int64_t step, int64_t every) {
  return every > 0 && step % every == 0;
}

}  // namespace

void InstallStopHandler() {
  struct sigaction action = {};
  action.sa_handler = HandleStop;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int StopSignal() {
  return stop_signal;
}

Result<LoopEnd> TrainingLoop::Run() {
  const RunConfig::Output& output = p_.config.output;
  Executor::RunOptions options{.trace = p_.trace, .before_update = [this] { return p_.saver.WaitUntilRead(); }};
  bool stopping = false;
  while (progress_.step < p_.total_steps && !stopping) {
    const double begin = Now();
    TEMPER_ASSIGN_OR_RETURN(const StepReport report, p_.trainer.Step(options));
    const double seconds = Now() - begin;
    // Kernel and page warm-up make a run's first step slow; later steps outweigh it.
    steady_seconds_per_step_ =
        window_steps_ == 0 && steady_seconds_per_step_ == 0 ? seconds : 0.8 * steady_seconds_per_step_ + 0.2 * seconds;
    progress_.step = report.step;
    progress_.sampler = p_.trainer.sampler().state();
    progress_.tokens += report.tokens;
    progress_.seconds += seconds;
    window_loss_ += report.loss;
    window_seconds_ += seconds;
    window_flops_ += p_.model_flops(report).v;
    window_tokens_ += report.tokens;
    ++window_steps_;

    stopping = StopSignal() != 0;
    const bool last = progress_.step == p_.total_steps;
    TEMPER_RETURN_IF_ERROR(Log(report));
    if (p_.evaluator && !stopping && (last || Due(progress_.step, output.eval_steps.value_or(0)))) {
      TEMPER_RETURN_IF_ERROR(Evaluate());
    }
    if (last || stopping || Due(progress_.step, output.save_steps)) TEMPER_RETURN_IF_ERROR(Save());
  }
  TEMPER_RETURN_IF_ERROR(p_.saver.Finish());
  p_.display.Finish();
  return stopping && progress_.step < p_.total_steps ? LoopEnd::kStopped : LoopEnd::kDone;
}

Status TrainingLoop::Log(const StepReport& report) {
  const bool last = report.step == p_.total_steps;
  const bool due = last || StopSignal() != 0 || Due(report.step, p_.config.output.logging_steps);
  const double per_second = window_seconds_ > 0 ? static_cast<double>(window_tokens_) / window_seconds_ : 0;
  std::optional<double> mfu;
  if (p_.peak_flops_per_second > 0 && window_seconds_ > 0)
    mfu = window_flops_ / window_seconds_ / p_.peak_flops_per_second;
  const double remaining = static_cast<double>(p_.total_steps - report.step) * steady_seconds_per_step_;
  p_.display.Update({.step = report.step,
                     .total_steps = p_.total_steps,
                     .epoch = report.epoch,
                     .loss = report.loss,
                     .grad_norm = report.grad_norm,
                     .learning_rate = report.learning_rate,
                     .tokens_per_second = per_second,
                     .mfu = mfu,
                     .memory = p_.device_peak,
                     .eta = Seconds{remaining}},
                    due);
  if (!due) return OkStatus();
  const TrainingRow row{.step = report.step,
                        .epoch = report.epoch,
                        .loss = window_loss_ / static_cast<double>(window_steps_),
                        .grad_norm = report.grad_norm,
                        .learning_rate = report.learning_rate,
                        .tokens = progress_.tokens,
                        .tokens_per_second = per_second,
                        .mfu = mfu,
                        .device_peak_bytes = p_.device_peak.v,
                        .seconds = progress_.seconds};
  TEMPER_RETURN_IF_ERROR(p_.metrics.Write(row));
  if (p_.tensorboard) {
    const double now = WallClock();
    for (const auto& [name, value] : {std::pair<const char*, double>{"loss", row.loss},
                                      {"grad_norm", row.grad_norm},
                                      {"learning_rate", row.learning_rate},
                                      {"tokens_per_second", row.tokens_per_second}}) {
      // A log for watching only: the run goes on without it.
      if (Status s = p_.tensorboard->AddScalar(name, row.step, value, now); !s.ok())
        p_.display.Message("warning: " + s.message());
    }
  }
  window_loss_ = window_seconds_ = window_flops_ = 0;
  window_steps_ = window_tokens_ = 0;
  return OkStatus();
}

Status TrainingLoop::Evaluate() {
  const double begin = Now();
  TEMPER_ASSIGN_OR_RETURN(const EvaluationReport report, p_.evaluator->Run());
  const double seconds = Now() - begin;
  last_eval_loss_ = report.loss;
  last_eval_step_ = progress_.step;
  if (!progress_.best_eval_loss || report.loss < *progress_.best_eval_loss) {
    progress_.best_eval_loss = report.loss;
    progress_.best_step = progress_.step;
  }
  p_.display.Message(fmt::format("step {}  eval_loss {:.4f}  ({} tokens, {})", progress_.step, report.loss,
                                 report.tokens, ToString(Seconds{seconds})));
  if (p_.tensorboard) {
    if (Status s = p_.tensorboard->AddScalar("eval_loss", progress_.step, report.loss, WallClock()); !s.ok()) {
      p_.display.Message("warning: " + s.message());
    }
  }
  return p_.metrics.Write(EvaluationRow{.step = progress_.step,
                                        .epoch = p_.trainer.sampler().epochs_done(),
                                        .eval_loss = report.loss,
                                        .eval_tokens = report.tokens,
                                        .eval_seconds = seconds});
}

Status TrainingLoop::Save() {
  if (last_save_step_ == progress_.step) return OkStatus();
  last_save_step_ = progress_.step;
  TEMPER_RETURN_IF_ERROR(p_.metrics.Sync());
  const bool measured = last_eval_step_ == progress_.step;
  return p_.saver.Save(progress_, measured ? last_eval_loss_ : std::nullopt);
}

}  // namespace temper
