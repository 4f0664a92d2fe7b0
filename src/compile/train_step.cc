#include "compile/train_step.h"

#include <array>

#include "compile/collectives.h"
#include "compile/differentiate.h"
#include "compile/fuse.h"
#include "compile/place.h"
#include "compile/update.h"
#include "compile/verify_placement.h"

namespace temper {
namespace {

// The part of one rank; `forward` itself where there is no other.
Result<Graph> LocalPart(const Graph& forward, const MeshSpec& spec) {
  if (spec.mesh.ranks() == 1) return forward;
  return PartitionByRules(forward, {.mesh = spec.mesh, .rank = spec.rank, .residual = spec.residual},
                          WithDefaults(spec.rules, spec.residual));
}

// That the graphs of a rank compute what one rank would (compile/verify_placement.h).
Status Prove(const Graph& forward, const MeshSpec& spec, std::span<const Graph* const> graphs) {
  if (spec.mesh.ranks() == 1) return OkStatus();
  TEMPER_ASSIGN_OR_RETURN(const PlacedWeights placed,
                          PlaceWeights(forward, spec.mesh, WithDefaults(spec.rules, spec.residual)));
  return VerifyPlacements(spec.mesh, placed.placements, graphs);
}

}  // namespace

Result<std::vector<Program>> CompileTraining(const Graph& forward, const Graph& eval_forward, const StepSpec& spec) {
  TEMPER_ASSIGN_OR_RETURN(const Graph local, LocalPart(forward, spec.mesh));
  TEMPER_ASSIGN_OR_RETURN(const Graph local_eval, LocalPart(eval_forward, spec.mesh));
  const Graph fused = Fuse(local);
  const RecomputeSpec recompute{spec.recompute, spec.mesh.reshard_after_forward};
  const auto micro_batch = [&](bool accumulate) {
    const Graph step = RecomputeBlocks(Differentiate(fused, accumulate), recompute);
    return UpdateInPlace(ScheduleCollectives(step, {.background = spec.mesh.overlap}));
  };
  const Graph first = micro_batch(false);
  const Graph rest = micro_batch(true);
  const Graph update = BuildUpdate(local, spec.adamw, spec.mesh.mesh);
  const Graph eval = UpdateInPlace(ScheduleCollectives(Fuse(local_eval), {.background = spec.mesh.overlap}));
  const std::array<const Graph*, 4> graphs = {&first, &rest, &update, &eval};
  for (const Graph* graph : graphs) TEMPER_RETURN_IF_ERROR(Verify(*graph));
  TEMPER_RETURN_IF_ERROR(Prove(forward, spec.mesh, graphs));

  std::vector<Stage> stages = {{&first, 0, 1}};
  if (spec.micro_batches > 1) stages.push_back({&rest, 1, spec.micro_batches});
  stages.push_back({&update, 0, 1});
  return Place(std::vector<ProgramPlan>{{"train", stages}, {"eval", {{&eval, 0, 1}}}}, spec.threads);
}

Result<std::vector<Program>> CompileForward(const std::vector<NamedGraph>& graphs, int threads) {
  std::vector<Graph> finished;
  finished.reserve(graphs.size());
  std::vector<ProgramPlan> plans;
  for (const NamedGraph& named : graphs) {
    finished.push_back(UpdateInPlace(Fuse(*named.graph)));
    TEMPER_RETURN_IF_ERROR(Verify(finished.back()));
    plans.push_back({named.name, {{&finished.back(), 0, 1}}});
  }
  return Place(plans, threads);
}

}  // namespace temper
