// TrainOn: what changes where a resumed run goes on with other settings, in words.
//
// The rate of a step is that of the new schedule at this step's number, as if the run had had it from the beginning.
// The order of rows does not depend on the batch: a step of another size takes the rows that follow.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "settings/run_config.h"

namespace temper {

// A run's settings, resolved, with what follows from them.
struct SettledRun {
  const RunConfig& config;
  int64_t total_steps = 0, rows_per_step = 0;
};

// Lines for the user; empty if nothing changes. `at`: where the checkpoint was saved, with `rows_per_epoch` rows in
// each epoch. REQUIRES: `now` has a valid schedule.
std::vector<std::string> DescribeTrainOn(const RunState& at, int64_t rows_per_epoch, const SettledRun& before,
                                         const SettledRun& now);

}  // namespace temper
