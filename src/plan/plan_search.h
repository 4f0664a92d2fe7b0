// temper plan --search: the best mesh, micro-batch and recompute for the rows of a step.
#pragma once

#include "plan/candidate.h"
#include "plan/planner.h"

namespace temper {

// Considers every mesh of the cluster's devices (dp x fsdp x tp), every split of the step's rows into micro-batches,
// recompute, overlap, and the number of blocks that stay gathered; the rows per step stay those of `config`. Candidates
// that may be among the ten best by their kernels are forecast on all cores, from models with few blocks of each kind,
// or whole if the model has few blocks or too many kinds; the winners are compiled whole. REQUIRES: `config` is
// resolved.
Result<SearchResult> SearchPlans(const Planner& planner, const RunConfig& config, SearchGoal goal);

}  // namespace temper
