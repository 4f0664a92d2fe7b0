// Validate: finds mistakes in a RunConfig that do not depend on the model or the machine. Paths of inputs and output
// are compared as text; no file is opened.
#pragma once

#include "base/status.h"
#include "settings/run_config.h"

namespace temper {

// The settings that a command requires.
enum class Purpose {
  kTrain,  // a model, data and an output folder
  kPlan,   // a model; `temper plan` needs no data
};

// Finds errors in one value or between several; each message has a remedy. Valid before and after Resolve.
Status Validate(const RunConfig& config, Purpose purpose);

// Error: rows that the task reads cannot be shortened so.
Status CheckLongRows(const ObjectiveRule& task, LongRows long_rows);
// Error: rows that the task reads have no use for one of these settings.
Status CheckRows(const ObjectiveRule& task, const RunConfig::Data& data);
// Of the settings for data only: those that a row template excludes.
Status CheckRowTemplate(const RunConfig::Data& data);

// Of the task: settings that it has no use for, and those of other tasks.
Status CheckTask(const RunConfig& config);

}  // namespace temper
