// RunSaver: the checkpoints of a training run: what a checkpoint of this run holds is decided once, then every Save
// hands the run's memory to the writer.
#pragma once

#include <string>

#include "checkpoint/checkpoint_writer.h"
#include "train/loop.h"

namespace temper {

class RunSaver final : public Saver {
 public:
  // `contents`: everything but the state, which Save fills in. `env` must outlive the saver.
  RunSaver(Env& env, CheckpointWriter::Options options, CheckpointContents contents)
      : writer_(env, std::move(options)), contents_(std::move(contents)) {}

  Status Save(const RunProgress& progress) override;
  Status WaitUntilRead() override { return writer_.WaitUntilRead(); }
  Status Finish() override { return writer_.Finish(); }

 private:
  CheckpointWriter writer_;
  CheckpointContents contents_;
};

// Where a checkpoint's run stood. kCorrupt where its own part of the state ("extra") is not as RunSaver writes it.
Result<RunProgress> ProgressOf(const RunState& state, double seconds);

}  // namespace temper
