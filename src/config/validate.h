// Validate: what is wrong with a RunConfig, whatever the model and the machine. The paths of its inputs and its output
// are compared by their text; no file is opened.
#pragma once

#include "base/status.h"
#include "config/run_config.h"

namespace temper {

// What a command has to have been given.
enum class Purpose {
  kTrain,  // a model, data and an output folder
  kPlan,   // a model; `temper plan` needs no data
};

// Errors in one value or between several, each with its remedy. Holds before and after Resolve.
Status Validate(const RunConfig& config, Purpose purpose);

}  // namespace temper
