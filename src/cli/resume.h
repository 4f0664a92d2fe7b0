// Going on from a checkpoint.
#pragma once

#include <string>

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/load_weights.h"
#include "train/loop.h"
#include "train/run_config.h"

namespace temper {

// Restores weights and states into the buffers of `train` and returns where the run stood. `now`: what a checkpoint of
// the present run would hold; data or settings that change the result are refused, a different machine is warned about.
Result<RunProgress> Resume(const std::string& checkpoint, const RunConfig& config, const CheckpointContents& now,
                           const Program& train, const BufferLookup& buffer);

}  // namespace temper
