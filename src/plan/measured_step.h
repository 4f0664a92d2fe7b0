// One measured step of a run, from the Chrome trace that `temper train --profile` writes.
#pragma once

#include <string>
#include <vector>

#include "base/env.h"
#include "program/trace_text.h"

namespace temper {

// The step of median length among the complete steps of the trace; times from its beginning, rows by begin. Errors: a
// file that is not such a trace, or has no complete step (a step ends where the next one's forward follows an update).
Result<std::vector<TraceRow>> ReadMeasuredStep(Env& env, const std::string& path);

}  // namespace temper
