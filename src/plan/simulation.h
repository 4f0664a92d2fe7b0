// Simulation: estimates a step on a cluster: the walk of compile/estimate/step_estimate.h with the speeds of the
// cluster's devices and links.
//
// All ranks of a stage behave alike, so one represents them. Stages of a pipeline run in parallel: the queues `send`
// and `receive` of each stage do one transfer after the other, each beginning when both ends have reached it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compile/estimate/step_estimate.h"
#include "plan/cluster.h"

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
