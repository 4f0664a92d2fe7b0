// What a training run keeps on the disk: the contents of its checkpoints, and the space that these and its result take.
#pragma once

#include "api/training_run.h"
#include "base/status.h"
#include "base/units.h"
#include "checkpoint/checkpoint_writer.h"

namespace temper {

// The contents of checkpoints, except the run's progress. REQUIRES: its memory is reserved.
Result<CheckpointContents> ContentsOf(const TrainingRun& run);

// The disk space that the run needs: a checkpoint, and its weights or adapter at the top of the output folder. All
// ranks call this at the same place.
Result<Bytes> DiskBytes(const CheckpointContents& contents, const TrainingRun& run);

}  // namespace temper
