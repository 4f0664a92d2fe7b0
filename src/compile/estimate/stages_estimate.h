// stages_estimate: estimates a step of a run on several ranks, from the Program of one rank of each stage: all ranks of
// a stage behave alike. Stages of a pipeline run in parallel: the queues `send` and `receive` of each stage do one
// transfer after the other, each beginning when both ends have reached it.
#pragma once

#include <span>
#include <vector>

#include "compile/estimate/step_estimate.h"
#include "compile/rates/rank_links.h"

namespace temper {

// The machines of a run, as one rank sees them. Pointers are borrowed; they outlive the use.
struct StageRates {
  const DeviceRates* device = nullptr;
  const DeviceRates* host = nullptr;  // of kernels on values in host memory
  LinkRates links;                    // between tiers
  RankLinks ranks;
  bool shared = false;  // StepRates::shared
};

// `stages`: the Program of the first rank of each stage of the mesh. One result for each. REQUIRES: the Programs are
// those of one run, whose stages do not deadlock (compile/pipeline/schedule.h).
std::vector<StepEstimate> EstimateStages(std::span<const Program* const> stages, const Mesh& mesh,
                                         const StageRates& rates, bool keep_events = false);

}  // namespace temper
