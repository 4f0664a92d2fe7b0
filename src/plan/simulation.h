// Simulation: what a step takes on a cluster: the walk of compile/estimate/step_estimate.h with the seconds that the
// cluster's devices and links take.
//
// Ranks of a stage do alike, so one stands for all. Stages of a pipeline run side by side: `send` and `receive` of each
// do one transfer after the other, which begins when both ends have come to it.
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
// most as many ranks as the cluster devices; the programs are those of one run, whose stages wait for nobody for ever
// (compile/pipeline/schedule.h).
std::vector<StepEstimate> Simulate(std::span<const Program* const> stages, const Mesh& mesh, const Cluster& cluster,
                                   bool keep_events = false);
// Of a mesh without stages.
StepEstimate Simulate(const Program& program, const Mesh& mesh, const Cluster& cluster, bool keep_events = false);

}  // namespace temper
