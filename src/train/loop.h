// The training loop: runs steps until the run is done or stopped; logs, evaluates and saves in between.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "base/progress_display.h"
#include "settings/run_config.h"
#include "train/best_evaluation.h"
#include "train/divergence.h"
#include "train/metrics.h"
#include "train/tensorboard.h"
#include "train/time_left.h"
#include "train/trainer.h"
#include "train/utilisation.h"

namespace temper {

// The state of a run, besides weights and optimizer states, that must be saved to resume it bit for bit.
struct RunProgress {
  int64_t step = 0;
  SamplerState sampler;
  int64_t tokens = 0;                       // real tokens trained on
  double seconds = 0;                       // spent in steps, over all resumptions
  std::optional<double> eval_loss, judged;  // of an evaluation at this step: its loss, and its number best.by
  BestEvaluation best;
  Divergence divergence;
  // Steps since the last row of metrics.jsonl, whose losses go into the next row.
  double unlogged_loss = 0;            // sum
  ReportValues unlogged_reports = {};  // sums, of the objective's reports; [0] is not used
  int64_t unlogged_steps = 0;
};

// Saves checkpoints. Save returns before the writing is done; memory
// that is still being read must not change until WaitUntilRead returns.
class Saver {
 public:
  virtual ~Saver() = default;
  virtual Status Save(const RunProgress& progress) = 0;
  virtual Status WaitUntilRead() = 0;
  virtual Status Finish() = 0;  // everything saved is durable
  // How long a save took in all, of the last one that has ended.
  virtual std::optional<Seconds> LastTime() = 0;
};

struct StepEvent {
  const StepReport& report;
  std::span<const ReportSpec> reported;  // what report.reports has
  const RunProgress& progress;           // after this step
  int64_t total_steps = 0;
  Seconds took, left;  // `left`: until the run is done
};

// What whoever started the run learns while it trains. The loop's thread calls it, on all ranks, once what it tells is
// in metrics.jsonl, if it has a row there.
class LoopEvents {
 public:
  virtual ~LoopEvents() = default;
  virtual void Stepped(const StepEvent& step) = 0;
  virtual void Evaluated(const EvaluationRow& row) = 0;
};

// kStopped: because it was asked to (Parts::stops). The loop has finished its step and saved; an evaluation was
// aborted, and is repeated when the run resumes. kDiverged: by stop_on_divergence; nothing was saved since.
enum class LoopEnd { kDone, kStopped, kDiverged };

class TrainingLoop {
 public:
  // Everything must outlive the loop; null where optional.
  struct Parts {
    const RunConfig& config;
    Trainer& trainer;
    Evaluator* evaluator = nullptr;
    Saver& saver;
    MetricsLog* metrics = nullptr;
    TensorBoardWriter* tensorboard = nullptr;
    ProgressDisplay& display;
    Peers peers;  // all ranks stop after the same step
    Utilisation* utilisation = nullptr;
    int64_t total_steps = 0, steps_per_epoch = 0;
    Bytes device_peak;
    std::optional<TiersRow> tiers;
    std::function<Flops(const StepReport&)> model_flops;
    double peak_flops_per_second = 0;  // 0: unknown, MFU is then absent
    std::function<bool()> stops;       // asked between steps, and within an evaluation; empty: never
    bool stop_is_told = false;         // whoever asked knows that the step is finished and saved first
    LoopEvents* events = nullptr;
    // Exchanges weights and their averages, around each evaluation (ExchangeAverages); empty: the weights are
    // evaluated.
    std::function<Status()> exchange_averages;
  };

  TrainingLoop(const Parts& parts, RunProgress start)
      : p_(parts), at_(CadenceOf(parts.config, parts.total_steps)), progress_(std::move(start)) {}
  Result<LoopEnd> Run();
  const RunProgress& progress() const { return progress_; }

 private:
  Result<StepReport> Step(const Executor::BeforeUpdate& before_update);
  // `due`: with a row in metrics.jsonl.
  Status Log(const StepReport& report, bool due);
  void WarnOfDivergence() const;
  // Of a step whose numbers are not finite: with what the loss did before, where that says the cause.
  Status WithLossBefore(const Status& failed) const;
  Status Evaluate();
  Result<EvaluationReport> RunEvaluator();
  Status Save();
  bool Asked() const { return p_.stops && p_.stops(); }
  bool last() const { return progress_.step == p_.total_steps; }
  bool stops_early() const {
    return progress_.best.without_gain >= p_.config.output.early_stopping_patience.value_or(INT64_MAX);
  }
  bool stops_diverged() const { return p_.config.output.stop_on_divergence && progress_.divergence.diverged(); }
  bool over() const { return last() || stops_early(); }
  bool EvaluationDue() const;  // after this step
  bool SaveDue() const;

  bool EpochEnds() const;  // with this step
  Seconds Remaining();

  const Parts p_;
  const RunCadence at_;
  RunProgress progress_;
  // For the speed since the last logged row, or since the run resumed.
  double window_seconds_ = 0, window_flops_ = 0;
  int64_t window_tokens_ = 0;
  TimeLeft time_left_;
  std::optional<ProgressState> shown_;  // of the last step
  double waited_ = 0;                   // in this step, for a save
};

}  // namespace temper
