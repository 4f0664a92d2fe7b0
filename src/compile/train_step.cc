#include "compile/train_step.h"

#include <array>

#include "compile/collectives.h"
#include "compile/differentiate.h"
#include "compile/fuse.h"
#include "compile/grad_sync.h"
#include "compile/place.h"
#include "compile/ring.h"
#include "compile/update.h"
#include "compile/verify_placement.h"
#include "compile/verify_ring.h"

namespace temper {
namespace {

// The part of one rank; `forward` itself where there is no other.
Result<Graph> LocalPart(const Graph& forward, const StepSpec& step, int rank, std::vector<Decision>* decisions) {
  const MeshSpec& spec = step.mesh;
  if (spec.mesh.ranks() == 1) return forward;
  return PartitionByRules(forward,
                          {.mesh = spec.mesh,
                           .rank = rank,
                           .residual = spec.residual,
                           .options = spec.decisions,
                           .micro_batches = step.micro_batches,
                           .decisions = decisions},
                          WithDefaults(spec.rules, spec.residual));
}

// By rank 0's part: those of others may be a row larger.
Result<GradSync> SyncOf(const Graph& forward, const Graph& local, const StepSpec& spec,
                        std::vector<Decision>* decisions) {
  const auto decide = [&](const Graph& first) {
    return DecideGradSync(first, spec.micro_batches, spec.mesh.decisions, decisions);
  };
  if (spec.mesh.rank == 0) return decide(local);
  TEMPER_ASSIGN_OR_RETURN(const Graph first, LocalPart(forward, spec, 0, nullptr));
  return decide(first);
}

// That the graphs of a rank compute what one rank would (compile/verify_placement.h, verify_ring.h).
Status Prove(const Graph& forward, const MeshSpec& spec, std::span<const Graph* const> graphs) {
  if (spec.mesh.ranks() == 1) return OkStatus();
  for (const Graph* graph : graphs) TEMPER_RETURN_IF_ERROR(VerifyRings(*graph));
  TEMPER_ASSIGN_OR_RETURN(const PlacedWeights placed,
                          PlaceWeights(forward, spec.mesh, WithDefaults(spec.rules, spec.residual)));
  return VerifyPlacements(spec.mesh, placed.placements, graphs);
}

}  // namespace

Result<std::vector<Program>> CompileTraining(const Graph& forward, const Graph& eval_forward, const StepSpec& spec,
                                             std::vector<Decision>* decisions) {
  std::vector<Decision> made;
  TEMPER_ASSIGN_OR_RETURN(const Graph local, LocalPart(forward, spec, spec.mesh.rank, &made));
  TEMPER_ASSIGN_OR_RETURN(const Graph local_eval, LocalPart(eval_forward, spec, spec.mesh.rank, nullptr));
  TEMPER_ASSIGN_OR_RETURN(const GradSync sync, SyncOf(forward, local, spec, &made));
  if (decisions != nullptr) *decisions = std::move(made);
  const Graph fused = Fuse(local);
  const bool once = sync == GradSync::kStep;
  const auto differentiated = [&](bool accumulate) {
    if (!once) return Differentiate(fused, accumulate);
    Graph step = Differentiate(TrainGathered(fused), accumulate);
    RestoreTrainable(fused, &step);
    return step;
  };
  const RecomputeSpec recompute{spec.recompute, spec.mesh.reshard_after_forward};
  const RingSpec ring{.background = spec.mesh.overlap};
  const auto micro_batch = [&](bool accumulate) {
    const Graph step = LowerRings(RecomputeBlocks(differentiated(accumulate), recompute), ring);
    return UpdateInPlace(ScheduleCollectives(step, {.background = spec.mesh.overlap}));
  };
  const Graph first = micro_batch(false);
  const Graph rest = micro_batch(true);
  const Graph update = BuildUpdate(local, spec.adamw, spec.mesh.mesh, once);
  const Graph eval =
      UpdateInPlace(ScheduleCollectives(LowerRings(Fuse(local_eval), ring), {.background = spec.mesh.overlap}));
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
