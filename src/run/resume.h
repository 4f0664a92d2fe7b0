// ResumePoint: a checkpoint to go on from. It is opened first of all, so that what does not fit is said before anything
// costly is done, and restored last.
#pragma once

#include <string>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/load_weights.h"
#include "compile/mesh/decisions.h"
#include "config/run_config.h"
#include "plan/compiled_run.h"
#include "train/loop.h"

namespace temper {

class ResumePoint {
 public:
  // Reads and checks all of the checkpoint but its tensors' data. `env` must outlive the result.
  static Result<ResumePoint> Open(Env& env, const std::string& checkpoint);

  const std::string& path() const { return reader_.path(); }
  int64_t step() const { return reader_.manifest().state.step; }
  bool evaluated() const { return reader_.manifest().state.eval_loss.has_value(); }

  // What the compiler chose for the run so far: it is chosen again, so that the bits stay.
  KeptDecisions decisions() const;

  // What was chosen for the run where its user left it open, such as the date that chat templates see, is no choice of
  // today's: fills it in where `config`, not yet resolved, leaves it open too.
  void KeepChoices(RunConfig& config) const;
  // Settings that change the result must be those that the checkpoint was trained with; and so must the data.
  Status CheckSettings(const RunConfig& resolved) const;
  // So must the rows of an optimizer step, however many ranks they are dealt to. The gradient_accumulation_steps with
  // which they are, on `data_ranks` ranks: as in `resolved`, unless their number has changed. Errors: other rows on as
  // many ranks, rows that make no whole number of micro-batches.
  Result<int64_t> AccumulationFor(const RunConfig& resolved, int64_t data_ranks) const;
  Status CheckData(const std::string& fingerprint, const RunConfig& resolved) const;

  // Restores weights and states into the buffers of the run, of whose trained values its Program may lack some (a
  // stage), and returns where the run stood. Another environment than `now` is warned about. `progress` as in
  // LoadWeights.
  Result<RunProgress> Restore(const RunIdentity& now, const CompiledRun& run, const BufferLookup& buffer,
                              const std::function<void(Bytes, Bytes)>& progress) const;

 private:
  ResumePoint(CheckpointReader reader, RunConfig config) : reader_(std::move(reader)), config_(std::move(config)) {}

  CheckpointReader reader_;
  RunConfig config_;  // that it was trained with
};

}  // namespace temper
