// Simulation: estimates a step on a cluster (compile/estimate/stages_estimate.h), with the speeds of its devices and
// links.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "compile/estimate/step_estimate.h"

namespace temper {

// The events as a Chrome trace, in the format of `temper train --profile`.
std::string TraceText(const StepEstimate& estimate);

// `stages`: the program of the first rank of each stage of the mesh. One result for each. REQUIRES: the mesh has at
// most as many ranks as the cluster devices; the programs are those of one run, whose stages do not deadlock
// (compile/pipeline/schedule.h).
std::vector<StepEstimate> Simulate(std::span<const Program* const> stages, const Mesh& mesh, const Cluster& cluster,
                                   bool keep_events = false);
// For a mesh without stages.
StepEstimate Simulate(const Program& program, const Mesh& mesh, const Cluster& cluster, bool keep_events = false);

}  // namespace temper
