// The plan as one HTML page that needs nothing else: memory over time by class, what each queue does when, the seconds
// of each op, who holds what; beside the same of a measured step where one is given. Light, and readable on paper.
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
