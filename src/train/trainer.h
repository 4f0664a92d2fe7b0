// Trainer: runs optimizer steps, one at a time: fills the step's micro-batches from the packed rows, writes the
// scalars, runs the Program, reads loss and gradient norm. Evaluator: computes the mean loss over the held-out samples.
// Means are over samples, or weighted by the tokens' weights; the sum of these over the whole batch is exact on any
// mesh, because they are fixed point. Both allocate their host arrays once; a step allocates nothing.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/named_number.h"
#include "compile/step/update.h"
#include "data/batch.h"
#include "data/sampler.h"
#include "objective/objective.h"
#include "runtime/executor.h"
#include "settings/schedule.h"
#include "train/expert_reports.h"
#include "train/host_batches.h"
#include "train/peers.h"

namespace temper {

class MismatchedKl;

// Runs a Program that does the same with shorter rows, of `row` tokens (compile/run/row_lengths.h).
struct ShorterRowsExecutor {
  int64_t row = 0;
  Executor* executor = nullptr;
};

// The source of a sample, for people: "data.jsonl line 12".
using SamplePlace = std::function<std::string(int32_t sample)>;

struct TrainerSpec {
  int64_t micro_batches = 1, rows_per_micro_batch = 1;
  Schedule schedule;
  UpdateSpec update;
  uint64_t seed = 42;
  SamplePlace place;
  const ObjectiveRule* objective = &Sft();  // of the Program
  ExpertReportsSpec experts;
  std::function<Flops(int64_t tokens)> attention_flops;  // of the model for a document; empty: not counted
  Peers peers;                                           // rows_per_micro_batch are those of one rank
  MismatchedKl* kl = nullptr;                            // with an objective of rated answers
  // The longest first: a micro-batch runs in the last one that holds the rows of all ranks, or all micro-batches of a
  // step do, if their work overlaps. They share the arena of the executor of max_seq_len, and outlive the trainer.
  std::vector<ShorterRowsExecutor> shorter;
  bool one_length_per_step = false;
};

struct StepReport {
  int64_t step = 0;  // completed, from 1
  double epoch = 0, loss = 0, grad_norm = 0, learning_rate = 0;
  ReportValues reports = {};  // of Trainer::reported, in its order; the first is `loss`
  int64_t tokens = 0;         // real tokens of this step
  Flops attention;            // by TrainerSpec::attention_flops, of all its documents
};

class Trainer {
 public:
  // `executor` runs the "train" Program; it and `store` must outlive the trainer.
  Trainer(Executor& executor, const TokenStore& store, std::span<const int32_t> samples, const PackingOptions& packing,
          const TrainerSpec& spec);

  // One optimizer step. Errors: a loss or norm that is not finite, naming the rows of the data; the weights are then
  // invalid and must not be saved.
  Result<StepReport> Step(const Executor::BeforeUpdate& before_update);

  int64_t step() const { return step_; }
  const Sampler& sampler() const { return sampler_; }
  // What a step reports: what the objective does, then of experts. The loss includes the one that balances these.
  std::span<const ReportSpec> reported() const { return reported_; }
  // Continues from a checkpoint's state.
  Status Restore(int64_t step, const SamplerState& sampler);

 private:
  struct RowRange {
    int64_t first = 0, count = 0;
  };
  // What a step does in rows of one length.
  struct Way {
    int64_t row;  // tokens
    Executor* executor;
    HostBatches batches;
    std::vector<HostArray> io;
  };
  Way& WayOf(int64_t micro_batch) { return ways_[way_[static_cast<size_t>(micro_batch)]]; }
  // Chooses the way of each micro-batch: the same on all ranks, each of which knows the rows of all.
  void ChooseWays(const Sampler::Batch& batch);
  // The number of rows of a micro-batch, of all ranks.
  int64_t RowsOfAll() const { return spec_.peers.data_ranks * spec_.rows_per_micro_batch; }
  // This rank's rows of a micro-batch, by their number in the epoch.
  RowRange OwnRows(const Sampler::Batch& batch, int64_t micro_batch) const;
  // `suspect`: this rank's own loss is not finite.
  Status CheckFinite(const Sampler::Batch& batch, const StepReport& report, bool suspect);

  Executor& executor_;
  const TokenStore& store_;
  const TrainerSpec spec_;
  Sampler sampler_;
  ExpertReports experts_;
  std::vector<Way> ways_;             // the longest rows first
  std::vector<int64_t> rows_of_way_;  // their lengths
  std::vector<size_t> way_;           // of each micro-batch of this step
  std::vector<ReportSpec> reported_;
  int scalars_, clip_, share_ = -1, rounding_ = -1;  // buffers of the Program; -1: no averages, nothing is rounded
  int64_t step_ = 0;
};

struct EvaluationReport {
  double loss = 0;                           // weighted mean over supervised tokens, or the mean over samples
  ReportValues reports = {};                 // as StepReport's
  std::vector<NamedNumber> of_classes = {};  // of a head of classes: "f1_macro", of two classes also "f1_binary"
  int64_t tokens = 0;                        // supervised
  int64_t rows = 0, all_tokens = 0;
  Seconds time;

  double rows_per_second() const { return static_cast<double>(rows) / time.v; }
  double tokens_per_second() const { return static_cast<double>(all_tokens) / time.v; }
};

class Evaluator {
 public:
  // `executor` runs the "eval" Program, whose micro-batch has `rows` rows of packing.max_seq_len tokens. `shorter`: as
  // TrainerSpec's.
  Evaluator(Executor& executor, const TokenStore& store, std::span<const int32_t> samples,
            const PackingOptions& packing, SamplePlace place, const Peers& peers = {},
            const ObjectiveRule& objective = Sft(), int64_t classes = 0, MismatchedKl* kl = nullptr,
            std::span<const ShorterRowsExecutor> shorter = {});
  // Before each batch calls `progress` with the rows done and those of all ranks, and `stop`; true ends with
  // kInterrupted. Errors: no supervised token among the samples; a loss that is not finite, naming the rows of the
  // data.
  Result<EvaluationReport> Run(const std::function<bool()>& stop = nullptr,
                               const std::function<void(int64_t done, int64_t rows)>& progress = nullptr);

 private:
  Executor& executor_;
  const TokenStore& store_;
  Packing packing_;
  SamplePlace place_;
  const Peers peers_;
  const ObjectiveRule& objective_;
  const int64_t classes_;  // of the model's head; 0: it has words
  HostBatches batch_;
  std::vector<ShorterRowsExecutor> executors_;  // of shorter rows
  std::vector<HostBatches> shorter_;            // for them
  std::vector<int64_t> rows_of_way_;
  MismatchedKl* const kl_;
};

}  // namespace temper
