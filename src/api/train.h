// TrainOnRanks: a whole run, from its settings to the finished adapter or model.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "api/stop_control.h"
#include "api/temper.h"
#include "api/train_setup.h"
#include "run/ranks.h"
#include "train/loop.h"

namespace temper {

struct RunCallbacks {
  StopControl& stop;
  LoopEvents* events = nullptr;
  std::function<void(const std::string& folder, int64_t step)> saved = {};  // as CheckpointWriter::Options::saved
};

// What the run says goes to the log of this thread. All ranks call this; the first has the whole result.
Result<TrainResult> TrainOnRanks(RunRequest request, const Ranks& ranks, const RunCallbacks& callbacks);

}  // namespace temper
