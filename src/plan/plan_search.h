// temper plan --search: the best mesh, micro-batch and recompute for the rows of a step.
#pragma once

#include "plan/candidate.h"
#include "plan/planner.h"

namespace temper {

// Looks at every mesh of the cluster's devices (dp x fsdp x tp), every cut of the step's rows into micro-batches,
// recompute, overlap, and how many blocks stay gathered; the step's rows stay what `config` says. Candidates are
// forecast on all cores, from models that have few of each kind of the model's blocks, or whole where that has few
// blocks or too many kinds; the winners are compiled whole. REQUIRES: `config` is resolved.
Result<SearchResult> SearchPlans(const Planner& planner, const RunConfig& config, SearchGoal goal);

}  // namespace temper
