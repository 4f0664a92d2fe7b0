// ResumePoint: a checkpoint to resume from. It is opened first,
// to report mismatches before any costly work, and restored last.
#pragma once

#include <string>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/load_weights.h"
#include "compile/mesh/decisions.h"
#include "config/run_config.h"
#include "plan/compiled_run.h"
#include "run/opened_model.h"
#include "train/loop.h"

namespace temper {

class ResumePoint {
 public:
  // Reads and checks everything in the checkpoint except its tensors' data. `env` must outlive the result.
  static Result<ResumePoint> Open(Env& env, const std::string& checkpoint);

  const std::string& path() const { return reader_.path(); }
  int64_t step() const { return reader_.manifest().state.step; }
  bool evaluated() const { return reader_.manifest().state.eval_loss.has_value(); }

  // The compiler's choices for the run so far: they are kept, so that the bits stay the same.
  KeptDecisions decisions() const;
  // The rates by which it chose (run/rates_of_run.h); nullopt: no choice depended on any, or they were typical.
  Result<std::optional<std::string>> rates() const;

  // Fills in settings that the run chose itself because its user left them open, such as the date for chat templates,
  // if `config`, not yet resolved, also leaves them open.
  void KeepChoices(RunConfig& config) const;
  // Settings that change the result must equal the checkpoint's.
  Status CheckSettings(const RunConfig& resolved) const;
  // The checkpoint's own chat template, for --chat_template; empty: the base model's.
  std::string chat_template() const;
  // That `model` has the chat template of the run so far.
  Status CheckTemplate(Env& env, const OpenedModel& model) const;
  // The rows of an optimizer step must also be the same, on any number of ranks. Returns the
  // gradient_accumulation_steps that make it so on `data_ranks` ranks: as in `resolved`, unless the number of ranks has
  // changed. Errors: different rows on as many ranks; rows that do not make a whole number of micro-batches.
  Result<int64_t> AccumulationFor(const RunConfig& resolved, int64_t data_ranks) const;
  // That the files of the model hold the same weights as when the run began.
  Status CheckBase(const ModelWeights& base) const;
  Status CheckData(const std::string& fingerprint, const RunConfig& resolved) const;

  // Restores weights and states into the buffers of the run (the Program of a pipeline stage may lack some), and
  // returns the run's progress. Warns if the environment differs from `now`. `progress` as in LoadWeights.
  Result<RunProgress> Restore(const RunIdentity& now, const CompiledRun& run, const BufferLookup& buffer,
                              const std::function<void(Bytes, Bytes)>& progress) const;

 private:
  bool Has(std::string_view file) const;
  ResumePoint(CheckpointReader reader, RunConfig config) : reader_(std::move(reader)), config_(std::move(config)) {}

  CheckpointReader reader_;
  RunConfig config_;  // with which it was trained
};

}  // namespace temper
