// The training loop: steps until the run is done or asked to stop; logs, evaluates and saves on the way.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "config/run_config.h"
#include "runtime/trace.h"
#include "train/metrics.h"
#include "train/progress.h"
#include "train/tensorboard.h"
#include "train/trainer.h"
#include "train/utilisation.h"

namespace temper {

// What of a run must outlive it to go on bit for bit, besides weights and optimizer states.
struct RunProgress {
  int64_t step = 0;
  SamplerState sampler;
  int64_t tokens = 0;               // real tokens trained on
  double seconds = 0;               // spent in steps, over all resumptions
  std::optional<double> eval_loss;  // of an evaluation at this very step
  std::optional<double> best_eval_loss;
  int64_t best_step = 0;
  // Steps since the last row of metrics.jsonl, whose losses are part of the next.
  double unlogged_loss = 0;  // sum
  int64_t unlogged_steps = 0;
};

// Keeps checkpoints. Save returns while the writing goes on; memory that is still being read must not change until
// WaitUntilRead returns.
class Saver {
 public:
  virtual ~Saver() = default;
  virtual Status Save(const RunProgress& progress) = 0;
  virtual Status WaitUntilRead() = 0;
  virtual Status Finish() = 0;  // everything saved is durable
};

// Before there is a step to finish, as Slurm wants to know it that requeues what was preempted: SIGTERM, SIGHUP and
// SIGUSR1 end the process with this exit code, SIGINT with 130. Until InstallStopHandler.
void ExitOnStopSignals(int code);

// Set by SIGINT, SIGTERM, SIGHUP and SIGUSR1 (InstallStopHandler; mpirun passes the last on, and kills for the others):
// the loop finishes its step, saves and returns; an evaluation is broken off, and made up for when the run goes on. A
// second signal ends the process at once, but for SIGHUP, which kernel and shell both send when a terminal closes.
void InstallStopHandler();
int StopSignal();  // 0: none
// From here on such signals do nothing: what they ask for is done. Launchers send SIGTERM to all ranks once the first
// has exited with a code that is not 0, and it must not change what the others exit with.
void IgnoreStopSignals();

enum class LoopEnd { kDone, kStopped };

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
    Peers peers;  // all stop after the same step
    Utilisation* utilisation = nullptr;
    Trace* trace = nullptr;
    int64_t total_steps = 0;
    Bytes device_peak;
    std::optional<TiersRow> tiers;
    std::function<Flops(const StepReport&)> model_flops;
    double peak_flops_per_second = 0;  // 0: unknown, MFU is then absent
  };

  TrainingLoop(const Parts& parts, RunProgress start) : p_(parts), progress_(start) {}
  Result<LoopEnd> Run();
  const RunProgress& progress() const { return progress_; }

 private:
  Status Step(const Executor::RunOptions& options);
  Status Log(const StepReport& report);
  Status Evaluate();
  Status Save();
  bool last() const { return progress_.step == p_.total_steps; }
  bool EvaluationDue() const;  // after this step
  bool SaveDue() const;

  const Parts p_;
  RunProgress progress_;
  // Speed since the last logged row, or since the run went on.
  double window_seconds_ = 0, window_flops_ = 0;
  int64_t window_tokens_ = 0;
  double steady_seconds_per_step_ = 0;  // running mean, for the ETA
};

}  // namespace temper
