#include "compile/prepared_step.h"

#include <fmt/core.h>

#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "compile/memory/cast_weights.h"
#include "compile/memory/pack_operands.h"
#include "compile/memory/pack_weights.h"
#include "compile/mesh/collectives.h"
#include "compile/mesh/feed_forward.h"
#include "compile/mesh/gather_once.h"
#include "compile/mesh/ring.h"
#include "compile/mesh/verify_ring.h"
#include "compile/mesh/verify_sharding.h"
#include "compile/pipeline/balance.h"
#include "compile/step/differentiate.h"
#include "compile/step/fuse.h"
#include "compile/step/join_adapters.h"
#include "compile/step/merge_update.h"
#include "graph/rule.h"
#include "tensor/dynamic_blocks.h"

namespace temper {
namespace {

// The mesh of one stage: without the axis pp. Stages are cut later; within one, pp does not matter.
Mesh MeshOfStage(const Mesh& mesh) {
  Mesh stage = mesh;
  stage.set_size(Axis::kPp, 1);
  return stage;
}

// Shardings of the weights of a step: computed once, because
// all of its graphs have the same weights. Empty for one rank.
Result<ShardedWeights> ShardStep(const Graph& forward, const MeshSpec& spec) {
  const Mesh mesh = MeshOfStage(spec.mesh);
  if (mesh.ranks() == 1) return ShardedWeights();
  return ShardWeights(forward, mesh, spec.rules, spec.residual);
}

// The part of one rank; `forward` itself if there is only one. pp
// varies slowest, so ranks are numbered alike within each stage.
Result<Graph> LocalPart(const Graph& forward, const StepSpec& step, const ShardedWeights& sharded, int rank,
                        std::vector<Decision>* decisions) {
  const MeshSpec& spec = step.mesh;
  const Mesh mesh = MeshOfStage(spec.mesh);
  if (mesh.ranks() == 1) return forward;
  return PartitionAsSharded(forward,
                            {.mesh = mesh,
                             .rank = rank % mesh.ranks(),
                             .residual = spec.residual,
                             .options = spec.decisions,
                             .micro_batches = step.micro_batches,
                             .decisions = decisions},
                            sharded, step.mesh.rules);
}

// Decides by rank 0's part, because those of other ranks may differ by a row.
Result<GradSync> SyncOf(const Graph& forward, const Graph& local, const StepSpec& spec, const ShardedWeights& sharded,
                        std::vector<Decision>* decisions) {
  const auto decide = [&](const Graph& first) {
    return DecideGradSync(first, spec.micro_batches, spec.update, spec.mesh.decisions, decisions);
  };
  if (spec.mesh.rank == 0) return decide(local);
  TEMPER_ASSIGN_OR_RETURN(const Graph first, LocalPart(forward, spec, sharded, 0, nullptr));
  return decide(first);
}

// Proves that the graphs of a rank compute the same as a single rank (compile/mesh/verify_sharding.h, verify_ring.h).
// For a pipeline: before it is cut.
Status Prove(const MeshSpec& spec, const ShardedWeights& sharded, std::span<const Graph* const> graphs) {
  const Mesh mesh = MeshOfStage(spec.mesh);
  if (mesh.ranks() == 1) return OkStatus();
  for (const Graph* graph : graphs) TEMPER_RETURN_IF_ERROR(VerifyRings(*graph));
  return VerifyShardings(mesh, sharded.shardings, graphs);
}

// Compiles micro-batches from this rank's forward graph.
class StepCompiler {
 public:
  // `once`: the last micro-batch reduces the gradients of gathered weights. `updates`: it also contains the update.
  StepCompiler(const StepSpec& spec, bool once, bool updates = false) : spec_(spec), once_(once), updates_(updates) {}

  // The micro-batches of a step. `make` gets a differentiated graph, and whether it is the last of the step.
  using Make = std::function<Result<PipelinedGraph>(Graph, bool)>;
  Result<std::vector<ProgramGraphs::MicroBatches>> MicroBatches(const Graph& fused, const Make& make) const {
    std::vector<ProgramGraphs::MicroBatches> train;
    const int all = spec_.micro_batches;
    const bool last_differs = once_ || HasTerms(fused) || updates_;
    for (int begin = 0; begin < all;) {
      const bool last = last_differs && begin == all - 1;
      const int count = begin == 0 || last ? 1 : all - begin - (last_differs ? 1 : 0);
      TEMPER_ASSIGN_OR_RETURN(PipelinedGraph graph, make(Differentiated(fused, begin > 0, last), last));
      train.push_back({std::move(graph), count});
      begin += count;
    }
    return train;
  }
  Graph MicroBatch(Graph differentiated) const { return ScheduleCollectives(std::move(differentiated), collectives()); }
  Graph Evaluation(const Graph& fused) const { return ScheduleCollectives(Forward(fused), collectives()); }

  // For a stage: collectives are scheduled within parts, because other micro-batches run between parts. `gathers`:
  // receives the gathers of weights that are gathered once per step; nullptr: weights are gathered at each use.
  Result<PipelinedGraph> OfStage(const Graph& whole, const PipelineCut& cut, Graph* gathers) const {
    TEMPER_ASSIGN_OR_RETURN(PipelinedGraph stage, CutPipeline(whole, cut));
    if (gathers != nullptr) {
      GatheredOnce once = GatherOnce(stage);
      stage = std::move(once.stage);
      *gathers = ScheduleCollectives(once.gathers, collectives());
    }
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
    TEMPER_RETURN_IF_ERROR(Verify(result.graph).WithContext("a stage of the pipeline"));
    return result;
  }

  // `last`: the last micro-batch of the step, which sums gradients over ranks.
  Graph Differentiated(const Graph& fused, bool accumulate, bool last) const {
    const bool pipelined = spec_.mesh.mesh.size(Axis::kPp) > 1;
    const int gathered = spec_.mesh.gathered_blocks.value_or(spec_.mesh.overlap && !pipelined ? 1 : 0);
    const RecomputeSpec recompute{.mode = spec_.recompute,
                                  .blocks = spec_.recompute_blocks,
                                  .gathered_blocks = gathered,
                                  .outside_blocks = pipelined && gathered != kAllBlocks};
    Graph step = LowerRings(RecomputeBlocks(Backward(fused, accumulate), recompute), rings());
    if (last) {
      const auto whole = once_ ? GatheredUses(fused) : std::vector<GatheredUse>();
      step = SyncGradients(std::move(step), whole, fused, spec_.mesh.mesh);
    }
    return Joined(std::move(step));
  }
  Graph Forward(const Graph& fused) const { return Joined(LowerRings(fused, rings())); }

 private:
  Graph Joined(Graph graph) const { return spec_.joins_adapters ? JoinAdapters(std::move(graph)) : graph; }
  Graph Backward(const Graph& fused, bool accumulate) const {
    if (!once_) return Differentiate(fused, accumulate);
    Graph step = Differentiate(TrainGathered(fused), accumulate);
    RestoreTrainable(fused, &step);
    return step;
  }
  CollectivesSpec collectives() const { return {.background = spec_.mesh.overlap}; }
  RingSpec rings() const { return {.background = spec_.mesh.overlap}; }

  const StepSpec& spec_;
  const bool once_, updates_;
};

// Bytes that rank 0 sends in the micro-batches and the update of a step, and the axes it sends them along.
struct Sent {
  Bytes bytes;
  AxisSet axes;
};
Result<Sent> SentPerStep(const Graph& forward, const StepSpec& spec, const ShardedWeights& sharded) {
  TEMPER_ASSIGN_OR_RETURN(Graph local, LocalPart(forward, spec, sharded, 0, nullptr));
  std::vector<Decision> ignored;
  const bool once =
      DecideGradSync(local, spec.micro_batches, spec.update, spec.mesh.decisions, &ignored) == GradSync::kStep;
  const Graph update = BuildUpdate(local, spec.update, MeshOfStage(spec.mesh.mesh));
  const Graph fused = Fuse(std::move(local));
  Sent sent;
  const auto add = [&](const Graph& graph, int times) {
    for (const Node& node : graph.nodes()) {
      const Bytes bytes = CostOf(graph, node).sent;
      if (bytes == Bytes{}) continue;
      sent.bytes += bytes * times;
      sent.axes |= *AxisSet::Parse(node.attributes.String("axes"));  // rules have checked it
    }
  };
  const StepCompiler compiler(spec, once);
  if (spec.micro_batches > 1) add(compiler.Differentiated(fused, false, false), spec.micro_batches - 1);
  add(compiler.Differentiated(fused, false, true), 1);
  add(update, 1);
  return sent;
}

// If tensor ranks split tokens: decides what they exchange for feed-forward parts, by the bytes of all collectives of a
// step in either case. Computed for rank 0, so that all ranks decide alike.
Result<MlpMove> DecideMlp(const Graph& forward, const StepSpec& spec, const ShardedWeights& sharded,
                          std::vector<Decision>* decisions) {
  const MeshSpec& mesh = spec.mesh;
  if (mesh.residual != ResidualSplit::kTokens || (mesh.mesh.axes() & kTensorAxes).empty()) return MlpMove::kActivations;
  if (FeedForwardProducts(forward, sharded.shardings).empty()) return MlpMove::kActivations;
  StepSpec way = spec;
  way.mesh.rank = 0;
  way.mesh.decisions.mlp = MlpMove::kActivations;
  TEMPER_ASSIGN_OR_RETURN(const Sent activations, SentPerStep(forward, way, sharded));
  way.mesh.decisions.mlp = MlpMove::kWeights;
  TEMPER_ASSIGN_OR_RETURN(const Sent weights, SentPerStep(forward, way, sharded));
  bool takes_weights = weights.bytes < activations.bytes;
  std::string reason = "it sends less";
  const auto earlier = mesh.decisions.kept.find("mlp");
  if (mesh.decisions.mlp != MlpMove::kAuto) {
    takes_weights = mesh.decisions.mlp == MlpMove::kWeights;
    reason = "requested";
  } else if (earlier != mesh.decisions.kept.end()) {
    takes_weights = earlier->second == "weights";
    reason = "same as the resumed run";
  }
  const Sent& taken = takes_weights ? weights : activations;
  const Sent& other = takes_weights ? activations : weights;
  decisions->push_back({.what = "mlp",
                        .chosen = takes_weights ? "weights" : "activations",
                        .rejected = takes_weights ? "activations" : "weights",
                        .sent = taken.bytes,
                        .sent_otherwise = other.bytes,
                        .time = LinkTime(taken.bytes, taken.axes),
                        .time_otherwise = LinkTime(other.bytes, other.axes),
                        .reason = std::move(reason)});
  return takes_weights ? MlpMove::kWeights : MlpMove::kActivations;
}

// Where a mesh cuts a block of a value's states, on any rank: all ranks refuse it alike.
bool CutsBlocks(const Value& value, const Sharding& sharding, const Mesh& mesh) {
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    if (!HasWholeBlocks(value.shard->global, BoxOf(value.shard->global, sharding, mesh, rank))) return true;
  }
  return false;
}

// An optimizer that is not elementwise needs whole matrices, or whole blocks of their states.
Status CheckUpdate(const Graph& local, const StepSpec& spec, const std::map<std::string, Sharding>& shardings) {
  std::set<std::string> known;  // shapes and shardings whose blocks are whole
  for (ValueId id = 0; id < local.num_values(); ++id) {
    const Value& v = local.value(id);
    if (!v.trainable || !v.shard || v.shard->split.empty()) continue;
    const UpdateRule& rule = spec.update.RuleOf(spec.update.Of(v));
    if (rule.elementwise()) continue;
    const char* cuts = "works on whole matrices, and";
    if (rule.in_blocks()) {
      const auto it = shardings.find(v.name);
      TEMPER_CHECK(it != shardings.end()) << v.name;
      const std::string kind = v.shard->global.ToString() + it->second.ToString(v.type.shape.rank());
      if (known.contains(kind) || !CutsBlocks(v, it->second, spec.mesh.mesh)) {
        known.insert(kind);
        continue;
      }
      cuts = "keeps states in blocks of 256 elements, which have to be whole, and";
    } else if (v.type.shape.rank() < 2) {
      cuts = "works on whole vectors, and";
    }
    return Unsupported(
        fmt::format("optimizer {} {} mesh {} splits {} over {}: keep it whole ('replicate' by mesh.sharding), "
                    "or take an optimizer that works on each element",
                    rule.name, cuts, spec.mesh.mesh.ToString(), v.name, v.shard->split.ToString()));
  }
  return OkStatus();
}

ProgramGraphs ForwardProgram(std::string name, Graph graph) {
  ProgramGraphs program{.name = std::move(name)};
  program.micro_batches.push_back({PipelinedGraph{.graph = std::move(graph)}});
  return program;
}

}  // namespace

Result<StepGraphs> PreparedStep::Whole(const StepSpec& spec, bool merges, size_t count) const {
  TEMPER_RETURN_IF_ERROR(CheckUpdate(graphs_.front(), spec, sharded_.shardings));
  const StepCompiler compiler(spec, sync_ == GradSync::kStep, merges);
  StepGraphs step;
  for (size_t k = 0; k < count; ++k) {
    const Graph& fused = graphs_[k];
    if (!of_[k].trains) {
      step.programs.push_back(ForwardProgram(of_[k].name, compiler.Evaluation(fused)));
      step.programs.back().shorter = of_[k].shorter;
      continue;
    }
    ProgramGraphs& train =
        step.programs.emplace_back(ProgramGraphs{.name = of_[k].name,
                                                 .trains = true,
                                                 .shorter = of_[k].shorter,
                                                 .update = BuildUpdate(fused, spec.update, spec.mesh.mesh)});
    const auto make = [&](Graph differentiated, bool last) -> Result<PipelinedGraph> {
      Graph micro_batch = compiler.MicroBatch(std::move(differentiated));
      if (last && merges) {
        micro_batch = MergeUpdate(std::move(micro_batch), std::exchange(train.update, {}), spec.micro_batches == 1);
      }
      return PipelinedGraph{.graph = std::move(micro_batch)};
    };
    TEMPER_ASSIGN_OR_RETURN(train.micro_batches, compiler.MicroBatches(fused, make));
  }
  std::vector<const Graph*> graphs;  // in the order of the step
  for (const ProgramGraphs& program : step.programs) {
    for (const ProgramGraphs::MicroBatches& some : program.micro_batches) graphs.push_back(&some.graph.graph);
    if (program.trains) graphs.push_back(&program.update);
  }
  // Each graph that a Program is made of is verified then, with its moves (compile/memory/memory_policy.cc).
  TEMPER_RETURN_IF_ERROR(Prove(spec.mesh, sharded_, graphs));
  return step;
}

Result<StepGraphs> PreparedStep::OfStage(const StepSpec& spec, size_t count) const {
  const Graph& forward = *of_.front().forward;
  const PipelineSpec& pipeline = spec.mesh.pipeline;
  const Mesh& mesh = spec.mesh.mesh;
  PipelineCut cut{.stage = mesh.Coordinate(spec.mesh.rank, Axis::kPp),
                  .stages = mesh.size(Axis::kPp),
                  .chunks_per_stage = pipeline.chunks_per_stage};
  TEMPER_ASSIGN_OR_RETURN(cut.chunk_of_block, ChunkOfBlocks(CostsOfBlocks(forward), cut.chunks(), pipeline.layers));
  TEMPER_ASSIGN_OR_RETURN(const PipelineSchedule schedule,
                          MakePipelineSchedule(pipeline.kind, cut.stages, cut.chunks_per_stage, spec.micro_batches));
  TEMPER_ASSIGN_OR_RETURN(const SimulatedPipeline simulated, SimulatePipeline(schedule, WorkTimes()));
  const PipelineSchedule eval_schedule = MakeForwardSchedule(cut.stages, cut.chunks_per_stage, 1);
  TEMPER_ASSIGN_OR_RETURN(const SimulatedPipeline eval_simulated, SimulatePipeline(eval_schedule, WorkTimes()));
  cut.split_weights = schedule.splits_backward;

  TEMPER_RETURN_IF_ERROR(CheckUpdate(graphs_.front(), spec, sharded_.shardings));
  const bool reduces_once = sync_ == GradSync::kStep, gathers_once = spec.mesh.gathered_blocks == kAllBlocks;
  const StepCompiler compiler(spec, reduces_once);
  StepGraphs step;
  step.programs.reserve(count);
  std::deque<Graph> whole;  // in the order of the step
  for (size_t k = 0; k < count; ++k) {
    ProgramGraphs& program = step.programs.emplace_back(
        ProgramGraphs{.name = of_[k].name, .trains = of_[k].trains, .shorter = of_[k].shorter});
    if (!program.trains) {
      whole.push_back(compiler.Forward(graphs_[k]));
      TEMPER_ASSIGN_OR_RETURN(PipelinedGraph stage, compiler.OfStage(whole.back(), cut, nullptr));
      program.micro_batches.push_back({std::move(stage)});
      program.pipeline = ProgramGraphs::Pipeline{CallsOfStage(eval_schedule, eval_simulated, cut.stage), {}};
      continue;
    }
    UpdateStage update_stage{.stage = cut.stage};
    const Graph split = SplitSharedWeights(graphs_[k], cut, &update_stage.holders), fused = Fuse(split);
    for (const auto& [name, holders] : update_stage.holders) {
      if (holders.size() == 2) continue;
      return Unsupported(fmt::format("{} is used on {} stages, and two at most can share a weight: take mesh.pp=2",
                                     name, holders.size()));
    }
    program.pipeline = ProgramGraphs::Pipeline{CallsOfStage(schedule, simulated, cut.stage), {}};
    const auto make = [&](Graph differentiated, bool) -> Result<PipelinedGraph> {
      whole.push_back(std::move(differentiated));
      // Gathers of all micro-batches are the same.
      return compiler.OfStage(whole.back(), cut, gathers_once ? &program.pipeline->gathers : nullptr);
    };
    TEMPER_ASSIGN_OR_RETURN(program.micro_batches, compiler.MicroBatches(fused, make));
    whole.push_back(BuildUpdate(split, spec.update, MeshOfStage(mesh)));
    TEMPER_RETURN_IF_ERROR(Verify(program.pipeline->gathers));
    TEMPER_ASSIGN_OR_RETURN(const PipelinedGraph uses, CutPipeline(fused, cut));
    program.update = BuildUpdate(uses.graph, spec.update, mesh, update_stage);
    TEMPER_RETURN_IF_ERROR(Verify(program.update));
  }
  std::vector<const Graph*> graphs;
  for (const Graph& graph : whole) graphs.push_back(&graph);
  TEMPER_RETURN_IF_ERROR(Prove(spec.mesh, sharded_, graphs));
  return step;
}

namespace {

void CutLoss(int64_t rows, Graph* graph) {
  if (rows == kDefaultLossChunk) return;
  for (Node& node : graph->nodes()) {
    if (IsLoss(node.op)) node.attributes.Set("chunk", rows);
  }
}

// Of the model that is trained, which comes last: blocks of a teacher have greater numbers.
int NumBlocks(const Graph& graph) {
  int last = kBlockBefore;
  for (const Node& node : graph.nodes()) {
    if (node.block >= 0) last = node.block;
  }
  return last + 1;
}

bool TrainsInBf16(const Graph& forward) {
  for (ValueId id = 0; id < forward.num_values(); ++id) {
    const Value& value = forward.value(id);
    if (value.role == Role::kWeight && value.trainable && value.type.dtype == DType::kBF16) return true;
  }
  return false;
}

Status CheckCasts(const Graph& forward, const MemorySpec& memory) {
  if (memory.matrices != TrainedMatrices::kCast) return OkStatus();
  if (!TrainsInBf16(forward)) {
    return InvalidArgument(
        "memory.bf16_weights is cast, but this run trains no weights in bf16: remove it, or set method: full and "
        "dtype: bf16");
  }
  if (memory.MayCast()) return OkStatus();
  return InvalidArgument(
      "memory.bf16_weights is cast, for which masters stay on the device, but memory.tiers, memory.weights or "
      "memory.optimizer moves them away: remove one of these");
}

Status CheckRounding(const Graph& forward, const UpdateSpec& update, const MemorySpec& memory) {
  if (!update.stochastic_rounding) return OkStatus();
  if (!TrainsInBf16(forward)) {
    return InvalidArgument(
        "stochastic_rounding is for weights that are trained in bf16, and this run has none: remove it, or set dtype: "
        "bf16");
  }
  if (memory.matrices == TrainedMatrices::kCast) {
    return InvalidArgument(
        "stochastic_rounding keeps no f32 masters, from which memory.bf16_weights: cast makes the weights: remove one "
        "of them");
  }
  return OkStatus();
}

// Whether the update may be part of the last micro-batch: without clipping, a pipeline, or an option that sets the tier
// of gradients; and not with weights that are widened for it, which would all be so from the micro-batch's begin on.
bool MayMergeUpdate(const StepSpec& spec, const MemorySpec& memory) {
  return spec.update.max_norm == 0 && !spec.update.stochastic_rounding && !memory.gradients &&
         spec.mesh.mesh.size(Axis::kPp) == 1;
}

// Rows of the loss.
int64_t TokensOf(const Graph& forward) {
  for (const Node& node : forward.nodes()) {
    if (IsLoss(node.op)) return forward.value(node.inputs[0]).type.shape[0];
  }
  return kDefaultLossChunk;
}

}  // namespace

int PreparedStep::first_of_stage() const {
  return spec_.mesh.rank - spec_.mesh.rank % MeshOfStage(spec_.mesh.mesh).ranks();
}

Result<std::vector<StepChoice>> PreparedStep::Choices(const MemorySpec& memory) const {
  const Graph& forward = *of_.front().forward;
  TEMPER_RETURN_IF_ERROR(CheckCasts(forward, memory));
  TEMPER_RETURN_IF_ERROR(CheckRounding(forward, spec_.update, memory));
  const bool may_cast = TrainsInBf16(forward) && !spec_.update.stochastic_rounding && memory.MayCast();
  std::vector<StepChoice> choices;
  if (memory.IsLimited()) {
    const TrainedMatrices matrices = may_cast ? memory.matrices : TrainedMatrices::kStored;
    choices = ChoicesWithin(spec_.recompute, spec_.recompute_blocks, NumBlocks(forward), TokensOf(forward), matrices);
  } else {
    choices.push_back({.recompute = spec_.recompute == Recompute::kAuto ? Recompute::kNone : spec_.recompute,
                       .recompute_blocks = spec_.recompute_blocks,
                       .casts = memory.matrices == TrainedMatrices::kCast});
  }
  for (StepChoice& choice : choices) choice.merges = MayMergeUpdate(spec_, memory);
  return choices;
}

Result<PreparedStep> PreparedStep::Of(std::span<const RunGraph> graphs, const StepSpec& given) {
  const Graph& forward = *graphs.front().forward;
  PreparedStep step(given);
  StepSpec spec = given;
  if (spec.recompute == Recompute::kAuto) spec.recompute = Recompute::kNone;  // until the choice is made
  TEMPER_ASSIGN_OR_RETURN(step.sharded_, ShardStep(forward, spec.mesh));
  TEMPER_ASSIGN_OR_RETURN(const MlpMove mlp, DecideMlp(forward, spec, step.sharded_, &step.decisions_));
  spec.mesh.decisions.mlp = step.spec_.mesh.decisions.mlp = mlp;
  step.of_.assign(graphs.begin(), graphs.end());
  for (const RunGraph& graph : graphs) {
    std::vector<Decision>* const decisions = &graph == &graphs.front() ? &step.decisions_ : nullptr;
    // Micro-batches of shorter rows add to the gradients of the longest ones, which are split as those decide.
    for (const Decision& d : step.decisions_) {
      if (graph.trains && graph.shorter) spec.mesh.decisions.kept.try_emplace(d.what, d.chosen);
    }
    TEMPER_ASSIGN_OR_RETURN(Graph part, LocalPart(*graph.forward, spec, step.sharded_, spec.mesh.rank, decisions));
    step.graphs_.push_back(std::move(part));
  }
  TEMPER_ASSIGN_OR_RETURN(step.sync_, SyncOf(forward, step.graphs_.front(), spec, step.sharded_, &step.decisions_));
  for (size_t k = 0; k < step.graphs_.size(); ++k) {
    // Stages that train fuse after shared weights are split.
    if (!step.pipelined() || !graphs[k].trains) step.graphs_[k] = Fuse(std::move(step.graphs_[k]));
  }
  return step;
}

Result<StepGraphs> PreparedStep::Make(const StepChoice& choice, bool shorter) const {
  size_t count = of_.size();
  while (!shorter && of_[count - 1].shorter) --count;
  StepSpec spec = spec_;
  spec.recompute = choice.recompute;
  spec.recompute_blocks = choice.recompute_blocks;
  TEMPER_ASSIGN_OR_RETURN(StepGraphs step, pipelined() ? OfStage(spec, count) : Whole(spec, choice.merges, count));
  if (choice.casts) CastWeights(&step);
  if (choice.packing == PackedOperands::kAll) PackWeights(&step);
  for (ProgramGraphs& program : step.programs) {
    for (ProgramGraphs::MicroBatches& some : program.micro_batches) CutLoss(choice.loss_chunk, &some.graph.graph);
  }
  if (choice.packing != PackedOperands::kNone) PackOperands(&step, choice.packing == PackedOperands::kAll);
  return step;
}

StepGraphs ForwardStep(std::span<const RunGraph> graphs, const StepSpec& spec) {
  const StepCompiler compiler(spec, /*once=*/false);
  StepGraphs step;
  for (const RunGraph& graph : graphs) {
    step.programs.push_back(ForwardProgram(graph.name, compiler.Evaluation(Fuse(*graph.forward))));
  }
  return step;
}

}  // namespace temper
