// RunSaver: the checkpoints of a training run: what a checkpoint of this run holds is decided once, then every Save
// hands the run's memory to the writer. On several ranks all make the same calls in the same order, and a save is good
// where it is on all of them.
#pragma once

#include <string>

#include "checkpoint/checkpoint_writer.h"
#include "run/ranks.h"
#include "train/loop.h"

namespace temper {

class RunSaver final : public Saver {
 public:
  // `contents`: everything but the state, which Save fills in; of tensors those that this rank is to write.
  // `data_ranks`: those with rows of their own. `env` and `ranks` must outlive the saver.
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

// Where a checkpoint's run stood. kCorrupt where its own part of the state ("extra") is not as RunSaver writes it.
Result<RunProgress> ProgressOf(const RunState& state, double seconds);
// How many ranks had rows of their own.
Result<int64_t> DataRanksOf(const RunState& state);

}  // namespace temper
