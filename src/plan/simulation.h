// Simulation: what a step takes on a cluster: the walk of compile/step_estimate.h with the seconds that the cluster's
// devices and links take. All ranks of a mesh without stages do alike, so one rank stands for all.
#pragma once

#include <string>

#include "compile/step_estimate.h"
#include "plan/cluster.h"

namespace temper {

// The events as a Chrome trace, in the format of `temper train --profile`.
std::string TraceText(const StepEstimate& estimate);

// `mesh`: whose rank 0 runs `program`. REQUIRES: the mesh has at most as many ranks as the cluster devices,
// and no stages (pp): these do different work and wait for each other.
StepEstimate Simulate(const Program& program, const Mesh& mesh, const Cluster& cluster, bool keep_events = false);

}  // namespace temper
