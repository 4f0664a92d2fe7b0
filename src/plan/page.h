// The plan as one self-contained HTML page: memory over time by class, a timeline of each queue, the seconds of each
// op, the sharding of tensors; next to the same for a measured step, if given. Light, and readable on paper.
#pragma once

#include <string>
#include <vector>

#include "plan/report.h"

namespace temper {

// REQUIRES: `on` names a cluster and a forecast that kept its events. `measured`: a step (plan/measured_step.h), or
// empty.
std::string PlanPage(const Program& train, const PlanFacts& facts, const PlanOnCluster& on,
                     const std::vector<TraceRow>& measured);

}  // namespace temper
