// RunSaver: the checkpoints of a training run. Their contents are decided once; then
// every Save hands the run's memory to the writer. With several ranks, all make the
// same calls in the same order, and a save succeeds only if it does on all of them.
#pragma once

#include <optional>
#include <string>

#include "checkpoint/checkpoint_writer.h"
#include "run/ranks.h"
#include "train/loop.h"

namespace temper {

// What a checkpoint keeps of its run's batch beside the settings.
struct SavedBatch {
  int64_t data_ranks = 1;  // with rows of their own
  // gradient_accumulation_steps as the user set it, where the run took another so that a step keeps its rows.
  std::optional<int64_t> asked_accumulation;
};

class RunSaver final : public Saver {
 public:
  // `contents`: everything except the state, which Save fills in; only the tensors that this rank writes. `env`
  // and `ranks` must outlive the saver.
  RunSaver(Env& env, CheckpointWriter::Options options, CheckpointContents contents, const Ranks& ranks,
           const SavedBatch& batch)
      : ranks_(ranks), batch_(batch), writer_(env, std::move(options)), contents_(std::move(contents)) {}

  Status Save(const RunProgress& progress) override;
  Status WaitUntilRead() override { return writer_.WaitUntilRead(); }
  Status Finish() override;
  std::optional<Seconds> LastTime() override;

 private:
  const Ranks& ranks_;
  const SavedBatch batch_;
  CheckpointWriter writer_;
  CheckpointContents contents_;
  bool saved_ = false;
};

// The progress of a checkpoint's run. kCorrupt if its own part of the state ("extra") is not as RunSaver writes it.
Result<RunProgress> ProgressOf(const RunState& state, double seconds);
Result<SavedBatch> SavedBatchOf(const RunState& state);

}  // namespace temper
