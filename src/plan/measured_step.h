// One step of a run as it was measured: from the Chrome trace that `temper train --profile` writes.
#pragma once

#include <string>
#include <vector>

#include "base/env.h"
#include "program/trace_text.h"

namespace temper {

// The step of median length among the whole ones of the trace; times from its beginning, rows by begin. Errors: a file
// that is no such trace, or holds no whole step (a step ends where the next one's forward follows an update).
Result<std::vector<TraceRow>> ReadMeasuredStep(Env& env, const std::string& path);

}  // namespace temper
