#include "compile/train_step.h"

#include <map>

#include "compile/differentiate.h"
#include "compile/fuse.h"
#include "compile/place.h"
#include "graph/builder.h"
#include "program/buffer_names.h"

namespace temper {
namespace {

// The block whose node first uses each source.
std::map<ValueId, int> BlocksOfSources(const Graph& graph) {
  std::map<ValueId, int> blocks;
  for (const Node& node : graph.nodes()) {
    for (ValueId id : node.inputs) blocks.try_emplace(id, node.block);
  }
  return blocks;
}

}  // namespace

Graph BuildUpdate(const Graph& forward, const AdamwSpec& spec) {
  Graph graph;
  GraphBuilder build(&graph);
  const std::map<ValueId, int> blocks = BlocksOfSources(forward);
  const ValueId scalars = build.Source(kScalarsBuffer, {DType::kF64, {kNumScalars}}, Role::kInput);

  struct Trainable {
    ValueId forward_id, gradient;
    int block;
  };
  std::vector<Trainable> trainables;
  std::vector<ValueId> sums;
  for (ValueId id = 0; id < forward.num_values(); ++id) {
    const Value& weight = forward.value(id);
    if (!weight.trainable) continue;
    const auto block = blocks.find(id);
    TEMPER_CHECK(block != blocks.end()) << weight.name << " is trainable but nothing uses it";
    build.EnterBlock(block->second, "", Phase::kUpdate);
    const ValueId gradient = build.Source(GradientName(weight.name), {DType::kF32, weight.type.shape}, Role::kGradient);
    sums.push_back(build.Add(Op::kSumSquares, {gradient}, {}, "sum_squares:" + weight.name)[0]);
    trainables.push_back({id, gradient, block->second});
  }

  build.EnterBlock(kBlockAfter, "", Phase::kUpdate);
  sums.push_back(scalars);
  const ValueId clip = build.Add(Op::kClip, sums, {{"max_norm", spec.max_norm}}, kClipBuffer, Role::kOutput)[0];

  for (const Trainable& t : trainables) {
    const Value& weight = forward.value(t.forward_id);
    build.EnterBlock(t.block, "", Phase::kUpdate);
    const TensorType state{DType::kF32, weight.type.shape};
    const bool has_master = weight.type.dtype != DType::kF32;
    const ValueId own = build.Source(weight.name, weight.type, weight.role);
    graph.value(own).trainable = true;
    const ValueId master = has_master ? build.Source(MasterName(weight.name), state, Role::kOptimizerState) : own;
    const ValueId m = build.Source(AdamMName(weight.name), state, Role::kOptimizerState);
    const ValueId v = build.Source(AdamVName(weight.name), state, Role::kOptimizerState);
    std::vector<ValueId> inputs = {master, t.gradient, m, v, clip, scalars};
    if (has_master) inputs.push_back(own);
    const double decay = weight.type.shape.rank() >= 2 ? spec.weight_decay : 0.0;
    const auto outputs = build.Add(Op::kAdamw, inputs,
                                   {{"beta1", spec.beta1},
                                    {"beta2", spec.beta2},
                                    {"eps", spec.eps},
                                    {"weight_decay", decay},
                                    {"weight", int64_t{has_master}}},
                                   "updated:" + weight.name);
    graph.value(outputs[0]).updates = master;
    graph.value(outputs[1]).updates = m;
    graph.value(outputs[2]).updates = v;
    if (has_master) graph.value(outputs[3]).updates = own;
  }
  return graph;
}

Result<std::vector<Program>> CompileTraining(const Graph& forward, const Graph& eval_forward, const StepSpec& spec) {
  const Graph fused = Fuse(forward);
  const auto micro_batch = [&](bool accumulate) {
    return UpdateInPlace(RecomputeBlocks(Differentiate(fused, accumulate), spec.recompute));
  };
  const Graph first = micro_batch(false);
  const Graph rest = micro_batch(true);
  const Graph update = BuildUpdate(forward, spec.adamw);
  const Graph eval = UpdateInPlace(Fuse(eval_forward));
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
