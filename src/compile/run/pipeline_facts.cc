#include "compile/run/pipeline_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/quantity.h"

namespace temper {

std::string PipelineFacts::ToString() const {
  return fmt::format("{}: {} stages, runs of {} blocks, {}, bubble {:.1f} %", schedule, stages, fmt::join(layers, ", "),
                     Counted(micro_batches, "micro-batch", "micro-batches"), 100 * bubble);
}

Result<PipelineFacts> PipelineFactsOf(const MeshSpec& mesh, int micro_batches, const StepChoice& choice, bool full) {
  const PipelineSpec& spec = mesh.pipeline;
  const int stages = mesh.mesh.size(Axis::kPp);
  PipelineFacts facts{.schedule = std::string(ToString(spec.kind)), .stages = stages, .micro_batches = micro_batches};
  facts.layers = spec.layers;
  TEMPER_ASSIGN_OR_RETURN(const PipelineSchedule schedule,
                          MakePipelineSchedule(spec.kind, stages, spec.chunks_per_stage, micro_batches));
  // Three products: the forward, the gradient of the input, the gradient of the weights. A recomputed block adds
  // another forward; recomputing cheap nodes adds almost nothing.
  const int blocks = std::accumulate(facts.layers.begin(), facts.layers.end(), 0);
  const int again = choice.recompute == Recompute::kBlock ? std::min(choice.recompute_blocks, blocks) : 0;
  const WorkTimes times{.backward = 1.0 + static_cast<double>(again) / blocks, .weights = full ? 1.0 : 0.0};
  TEMPER_ASSIGN_OR_RETURN(const SimulatedPipeline simulated, SimulatePipeline(schedule, times));
  facts.bubble = simulated.bubble;
  for (const Slots& slots : CallsOfStage(schedule, simulated, mesh.mesh.Coordinate(mesh.rank, Axis::kPp)).slots) {
    facts.in_flight += slots[static_cast<size_t>(SlotKind::kKept)];
  }
  return facts;
}

}  // namespace temper
