// RunSaver: the checkpoints of a training run. Their contents are decided once; then
// every Save hands the run's memory to the writer. With several ranks, all make the
// same calls in the same order, and a save succeeds only if it does on all of them.
#pragma once

#include <string>

#include "checkpoint/checkpoint_writer.h"
#include "run/ranks.h"
#include "train/loop.h"

namespace temper {

class RunSaver final : public Saver {
 public:
  // `contents`: everything except the state, which Save fills in; only the tensors that this rank writes. `data_ranks`:
  // ranks with their own rows. `env` and `ranks` must outlive the saver.
  RunSaver(Env& env, CheckpointWriter::Options options, CheckpointContents contents, const Ranks& ranks,
           int64_t data_ranks)
      : ranks_(ranks), data_ranks_(data_ranks), writer_(env, std::move(options)), contents_(std::move(contents)) {}

  Status Save(const RunProgress& progress) override;
  Status WaitUntilRead() override { return writer_.WaitUntilRead(); }
  Status Finish() override;

 private:
  const Ranks& ranks_;
  const int64_t data_ranks_;
  CheckpointWriter writer_;
  CheckpointContents contents_;
};

// The progress of a checkpoint's run. kCorrupt if its own part of the state ("extra") is not as RunSaver writes it.
Result<RunProgress> ProgressOf(const RunState& state, double seconds);
// The number of ranks that had their own rows.
Result<int64_t> DataRanksOf(const RunState& state);

}  // namespace temper
