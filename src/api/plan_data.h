// The data of a run that is planned: what it says of the run's length, and of the rows of a step.
#pragma once

#include <cstdint>
#include <optional>

#include "api/train_setup.h"
#include "base/status.h"
#include "plan/forecast.h"
#include "plan/report.h"
#include "run/data.h"

namespace temper {

// Errors: the run names no data, or has no tokenizer; those of `temper train`.
Result<RunData> ReadData(const TrainSetup& setup);
// The run's data, where it is small. Errors: those of `temper train`, also of its evaluation data.
Result<std::optional<RunData>> SmallData(const TrainSetup& setup);

// The steps of the run, whose step has `rows`; without its data if max_steps says them, for `tokens_per_step`.
Result<std::optional<RunLength>> LengthOf(const RunConfig& config, const std::optional<RunData>& data, int64_t rows,
                                          int64_t tokens_per_step);

// How full the rows of the run's own data are.
Result<RowFill> FillOf(const RunConfig& config, const RunData& data);

}  // namespace temper
