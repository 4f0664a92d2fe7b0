#include "compile/train_step.h"

#include "compile/collectives.h"
#include "compile/differentiate.h"
#include "compile/fuse.h"
#include "compile/place.h"
#include "compile/update.h"

namespace temper {
namespace {

// The part of one rank; `forward` itself where there is no other. Stages are cut later: within one they do not matter.
Result<Graph> LocalPart(const Graph& forward, const MeshSpec& spec) {
  Mesh mesh = spec.mesh;
  mesh.set_size(Axis::kPp, 1);
  if (mesh.ranks() == 1) return forward;
  std::vector<PlacementRule> rules = spec.rules;
  for (PlacementRule& rule : DefaultPlacementRules(spec.residual)) rules.push_back(std::move(rule));
  TEMPER_ASSIGN_OR_RETURN(const auto weights, PlaceWeights(forward, mesh, rules));
  // pp varies slowest: ranks of a stage are numbered alike.
  return Partition(forward,
                   {.mesh = mesh, .rank = spec.rank % mesh.ranks(), .residual = spec.residual, .weights = &weights});
}

// One micro-batch, from this rank's forward graph on.
class StepCompiler {
 public:
  explicit StepCompiler(const StepSpec& spec) : spec_(spec) {}

  Graph MicroBatch(const Graph& fused, bool accumulate) const {
    return UpdateInPlace(ScheduleCollectives(Differentiated(fused, accumulate), collectives()));
  }
  Graph Evaluation(const Graph& local_eval) const {
    return UpdateInPlace(ScheduleCollectives(Fuse(local_eval), collectives()));
  }

  // Of a stage: collectives are scheduled within parts, because other micro-batches come between these.
  Result<PipelinedGraph> OfStage(const Graph& whole, const PipelineCut& cut) const {
    TEMPER_ASSIGN_OR_RETURN(const PipelinedGraph stage, CutPipeline(whole, cut));
    PipelinedGraph result;
    for (ValueId id = 0; id < stage.graph.num_values(); ++id) result.graph.AddValue(stage.graph.value(id));
    for (const PipelinePart& part : stage.parts) {
      Graph alone;
      for (ValueId id = 0; id < stage.graph.num_values(); ++id) alone.AddValue(stage.graph.value(id));
      for (size_t i = part.begin; i < part.end; ++i) alone.AddNode(stage.graph.nodes()[i]);
      const size_t begin = result.graph.nodes().size();
      const Graph scheduled = ScheduleCollectives(alone, collectives());
      for (const Node& node : scheduled.nodes()) result.graph.AddNode(node);
      result.parts.push_back({part.kind, part.chunk, begin, result.graph.nodes().size()});
    }
    result.graph = UpdateInPlace(result.graph);
    TEMPER_RETURN_IF_ERROR(Verify(result.graph).WithContext("a stage of the pipeline"));
    return result;
  }

  Graph Differentiated(const Graph& fused, bool accumulate) const {
    const bool pipelined = spec_.mesh.mesh.size(Axis::kPp) > 1;
    return RecomputeBlocks(Differentiate(fused, accumulate),
                           {spec_.recompute, spec_.mesh.reshard_after_forward, /*outside_blocks=*/pipelined});
  }

 private:
  CollectivesSpec collectives() const { return {.background = spec_.mesh.overlap}; }
  const StepSpec& spec_;
};

Result<std::vector<Program>> CompilePipeline(const Graph& local, const Graph& local_eval, const StepSpec& spec) {
  const PipelineSpec& pipeline = spec.mesh.pipeline;
  const Mesh& mesh = spec.mesh.mesh;
  if (!spec.mesh.reshard_after_forward && mesh.size(Axis::kFsdp) > 1) {
    return InvalidArgument(
        "mesh.reshard_after_forward: false in a pipeline would keep the gathered weights of every micro-batch in "
        "flight; leave it out, or do without mesh.fsdp");
  }
  PipelineCut cut{.stage = mesh.Coordinate(spec.mesh.rank, Axis::kPp),
                  .stages = mesh.size(Axis::kPp),
                  .chunks_per_stage = pipeline.chunks_per_stage};
  TEMPER_ASSIGN_OR_RETURN(cut.chunk_of_block, ChunkOfBlocks(NumBlocks(local), cut.chunks(), pipeline.layers));
  TEMPER_ASSIGN_OR_RETURN(const PipelineSchedule schedule,
                          MakePipelineSchedule(pipeline.kind, cut.stages, cut.chunks_per_stage, spec.micro_batches));
  TEMPER_ASSIGN_OR_RETURN(const SimulatedPipeline simulated, SimulatePipeline(schedule, WorkTimes()));
  const PipelineSchedule eval_schedule = MakeForwardSchedule(cut.stages, cut.chunks_per_stage, 1);
  TEMPER_ASSIGN_OR_RETURN(const SimulatedPipeline eval_simulated, SimulatePipeline(eval_schedule, WorkTimes()));
  cut.split_weights = schedule.splits_backward;

  const StepCompiler compiler(spec);
  UpdateStage update_stage{.stage = cut.stage};
  const Graph fused = Fuse(SplitSharedWeights(local, cut, &update_stage.holders));
  PipelinedGraph first, rest;
  TEMPER_ASSIGN_OR_RETURN(first, compiler.OfStage(compiler.Differentiated(fused, false), cut));
  if (spec.micro_batches > 1) {
    TEMPER_ASSIGN_OR_RETURN(rest, compiler.OfStage(compiler.Differentiated(fused, true), cut));
  }
  TEMPER_ASSIGN_OR_RETURN(const PipelinedGraph eval, compiler.OfStage(Fuse(local_eval), cut));
  const Graph update = BuildUpdate(first.graph, spec.adamw, mesh, update_stage);
  TEMPER_RETURN_IF_ERROR(Verify(update));

  const PipelinedStep train_step{&first, spec.micro_batches > 1 ? &rest : nullptr,
                                 CallsOfStage(schedule, simulated, cut.stage)};
  const PipelinedStep eval_step{&eval, nullptr, CallsOfStage(eval_schedule, eval_simulated, cut.stage)};
  return Place(std::vector<ProgramPlan>{{"train", {{&update, 0, 1}}, train_step}, {"eval", {}, eval_step}},
               spec.threads);
}

}  // namespace

Result<std::vector<Program>> CompileTraining(const Graph& forward, const Graph& eval_forward, const StepSpec& spec) {
  TEMPER_ASSIGN_OR_RETURN(const Graph local, LocalPart(forward, spec.mesh));
  TEMPER_ASSIGN_OR_RETURN(const Graph local_eval, LocalPart(eval_forward, spec.mesh));
  if (spec.mesh.mesh.size(Axis::kPp) > 1) return CompilePipeline(local, local_eval, spec);
  const StepCompiler compiler(spec);
  const Graph fused = Fuse(local);
  const Graph first = compiler.MicroBatch(fused, false);
  const Graph rest = compiler.MicroBatch(fused, true);
  const Graph update = BuildUpdate(local, spec.adamw, spec.mesh.mesh);
  const Graph eval = compiler.Evaluation(local_eval);
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
