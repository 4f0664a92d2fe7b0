#include "compile/train_step.h"

#include "compile/collectives.h"
#include "compile/differentiate.h"
#include "compile/fuse.h"
#include "compile/place.h"
#include "compile/ring.h"
#include "compile/update.h"

namespace temper {
namespace {

// The part of one rank; `forward` itself where there is no other.
Result<Graph> LocalPart(const Graph& forward, const MeshSpec& spec) {
  if (spec.mesh.ranks() == 1) return forward;
  std::vector<PlacementRule> rules = spec.rules;
  for (PlacementRule& rule : DefaultPlacementRules(spec.residual)) rules.push_back(std::move(rule));
  TEMPER_ASSIGN_OR_RETURN(const auto weights, PlaceWeights(forward, spec.mesh, rules));
  return Partition(forward, {.mesh = spec.mesh, .rank = spec.rank, .residual = spec.residual, .weights = &weights});
}

}  // namespace

Result<std::vector<Program>> CompileTraining(const Graph& forward, const Graph& eval_forward, const StepSpec& spec) {
  TEMPER_ASSIGN_OR_RETURN(const Graph local, LocalPart(forward, spec.mesh));
  TEMPER_ASSIGN_OR_RETURN(const Graph local_eval, LocalPart(eval_forward, spec.mesh));
  const Graph fused = Fuse(local);
  const RecomputeSpec recompute{spec.recompute, spec.mesh.reshard_after_forward};
  const RingSpec ring{.background = spec.mesh.overlap};
  const auto micro_batch = [&](bool accumulate) {
    const Graph step = LowerRings(RecomputeBlocks(Differentiate(fused, accumulate), recompute), ring);
    return UpdateInPlace(ScheduleCollectives(step, {.background = spec.mesh.overlap}));
  };
  const Graph first = micro_batch(false);
  const Graph rest = micro_batch(true);
  const Graph update = BuildUpdate(local, spec.adamw, spec.mesh.mesh);
  const Graph eval =
      UpdateInPlace(ScheduleCollectives(LowerRings(Fuse(local_eval), ring), {.background = spec.mesh.overlap}));
  for (const Graph* graph : {&first, &rest, &update, &eval}) TEMPER_RETURN_IF_ERROR(Verify(*graph));

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
