// ResumePoint: a checkpoint to resume from. It is opened first,
// to report mismatches before any costly work, and restored last.
#pragma once

#include <string>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/load_weights.h"
#include "compile/mesh/decisions.h"
#include "compile/run/compiled_run.h"
#include "device/product_choices.h"
#include "run/opened_model.h"
#include "run/train_on.h"
#include "settings/run_config.h"
#include "train/loop.h"

namespace temper {

class ResumePoint {
 public:
  // Reads and checks everything in the checkpoint except its tensors' data. `env` must outlive the result.
  static Result<ResumePoint> Open(Env& env, const std::string& checkpoint);

  const std::string& path() const { return reader_.path(); }
  const RunState& state() const { return reader_.manifest().state; }
  // The files of its training and its evaluation, among others.
  const RunConfig::Data& data() const { return config_.data; }
  // Of the loss that balances experts; 0 for a run that is older than it.
  double router_aux_loss_coef() const { return config_.regularisation.router_aux_loss_coef.value_or(0); }
  bool evaluated() const { return state().eval_loss.has_value(); }

  // The compiler's choices for the run so far: they are kept, so that the bits stay the same.
  KeptDecisions decisions() const;
  // The rates by which it chose (run/rates_of_run.h); nullopt: no choice depended on any, or they were typical.
  Result<std::optional<std::string>> rates() const;
  // The algorithms of its matrix products (run/products_of_run.h); empty: the libraries' first choices.
  Result<ProductChoices> products() const;

  // Fills in settings that the run chose itself because its user left them open, such as the date for chat templates,
  // if `config`, not yet resolved, also leaves them open.
  void KeepChoices(RunConfig& config) const;
  // An error for settings that may not change (OnResume::kSame), and for such as need other states of the optimizer.
  Status CheckSettings(const RunConfig& resolved) const;
  // For ModelChoice: the checkpoint if it has chat templates of its own; empty: the base model's are used.
  std::string templates_of() const;
  // That `model` has the chat template of the run so far.
  Status CheckTemplate(Env& env, const OpenedModel& model) const;
  // gradient_accumulation_steps as the user once set it, if the checkpoint has another and a step of `resolved` keeps
  // its rows.
  Result<std::optional<int64_t>> AskedAccumulation(const RunConfig& resolved, int64_t data_ranks) const;
  // For a batch whose cut is left open (RunConfig::Batch::auto_cut), of the rows of before: on as many ranks it is cut
  // as it was, so that sums keep their order; on others gradient_accumulation_steps becomes the rows of each, still to
  // be cut. Error: the ranks do not divide the rows of a step.
  Status KeepCut(int64_t data_ranks, RunConfig* config) const;
  // gradient_accumulation_steps on `data_ranks` ranks. As in `resolved`, but if of the batch only the number of ranks
  // has changed, so many that a step has as many rows as before. Error: these do not make a whole number of
  // micro-batches.
  Result<int64_t> AccumulationFor(const RunConfig& resolved, int64_t data_ranks) const;
  // DescribeTrainOn from this checkpoint.
  Result<std::vector<std::string>> DescribeChanges(const SettledRun& now, int64_t rows_per_epoch) const;
  // That the files of the model hold the same weights as when the run began.
  Status CheckBase(const ModelWeights& base) const;
  Status CheckData(const std::string& fingerprint, const RunConfig& resolved) const;

  // Restores weights and states into the buffers of the run (the Program of a pipeline stage may lack some), and
  // returns the run's progress. Warns if the environment differs from `now`, and the program, unless settings of the
  // Program have changed. If losses of evaluation cannot be compared with those before (other data, by its fingerprint,
  // or label smoothing), it logs that the best starts anew. `progress` as in LoadWeights.
  Result<RunProgress> Restore(const RunIdentity& now, const RunConfig& resolved, const std::string& eval_fingerprint,
                              const CompiledRun& run, const BufferLookup& buffer,
                              const std::function<void(Bytes, Bytes)>& progress) const;

 private:
  bool Has(std::string_view file) const;
  Result<RunProgress> ProgressFor(const RunConfig& resolved, const std::string& eval_fingerprint) const;
  ResumePoint(CheckpointReader reader, RunConfig config) : reader_(std::move(reader)), config_(std::move(config)) {}

  CheckpointReader reader_;
  RunConfig config_;  // with which it was trained
};

}  // namespace temper
