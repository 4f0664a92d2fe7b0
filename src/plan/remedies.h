// Remedies: settings with which a run that does not fit would fit, or a slow one would be faster. Each is compiled and
// forecast as the run itself is (plan/planner.h); advice.h makes text of them.
#pragma once

#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "plan/advice.h"
#include "plan/planner.h"

namespace temper {

// Each setting that would lower the memory that a rank lacks, with its savings and cost; then, if none is enough alone,
// the combination of settings. They are compiled on all cores, and what a choice of tiers costs is searched quickly:
// with these settings a run is as fast or faster. Of a large model, those that cannot fit are extrapolated
// from few blocks (compile/run/few_blocks.h). REQUIRES: `planned` does not fit.
Result<std::vector<Remedy>> FindRemedies(const Planner& planner, const RunConfig& config, const PlannedRun& planned);

// A step that takes longer makes a run of days: worth a look for a faster one.
inline constexpr Seconds kSlowStep{60};

// For a run that fits, but whose step takes minutes: the ways of keeping its base (int8, nf4) with which it fits and is
// at least 1.5 times as fast, because its weights then stay nearer. Compiled and forecast as above; empty for other
// runs.
std::vector<Remedy> FindFasterBases(const Planner& planner, const RunConfig& config, const PlannedRun& planned);

}  // namespace temper
