// Hiding collectives: those of a block's backward on tensor ranks behind products whose results are not needed yet;
// those of gradients added up once per step behind the backward of the last micro-batch.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "../tiny_run.h"
#include "compile/mesh/collectives.h"
#include "compile/step/differentiate.h"
#include "compile/step/fuse.h"
#include "compile/train_step.h"
#include "graph/named_ops.h"
#include "graph/rule.h"
#include "model/lora_rewrite.h"
#include "program/buffer_names.h"

namespace temper::tiny::overlap_test {
namespace {

// Wide enough for the products of a block to hide the exchange of tensor ranks.
const std::string& Wide() {
  static const std::string config = LlamaConfigText(/*tied=*/false, /*hidden=*/256, /*blocks=*/2);
  return config;
}

// The first micro-batch of a rank.
Graph StepOf(const MeshSpec& spec, bool lora, bool overlap) {
  const auto model = MakeModel(Wide());
  Graph forward = model->Forward({.tokens = 96, .row = 4, .training = lora});
  if (lora) {
    const LoraConfig adapters{.r = 4, .alpha = 8};
    forward = AddLora(forward, Must(ResolveLora(model->modules(), adapters)), /*dropout=*/0.1);
  } else {
    TrainAllWeights(&forward);
  }
  Graph local = Must(PartitionByRules(forward, {.mesh = spec.mesh, .residual = spec.residual}, spec.rules));
  return ScheduleCollectives(Differentiate(Fuse(std::move(local)), /*accumulate=*/false), {.background = overlap});
}

struct Hidden {
  int collectives = 0, hidden = 0;  // of activations, in the backward of block 0
  std::vector<int> products;        // dW products after each hidden collective, until its result is needed
};
Hidden LookAt(const Graph& graph) {
  Hidden found;
  const auto& nodes = graph.nodes();
  const WeightMoves weights = FindWeightMoves(graph);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    if (!IsCollective(node.op) || weights.gathers[i] || weights.reduces[i]) continue;
    const bool soon = node.attributes.Flag("soon");
    EXPECT_EQ(soon, node.attributes.Flag("background")) << ToString(node.op);
    EXPECT_TRUE(node.phase == Phase::kBackward || !soon) << "in the forward everything waits for it";
    if (node.phase != Phase::kBackward || node.block != 0) continue;
    ++found.collectives;
    if (!soon) continue;
    ++found.hidden;
    int products = 0;
    const auto takes = [&](const Node& n) {
      return std::find(n.inputs.begin(), n.inputs.end(), node.outputs[0]) != n.inputs.end();
    };
    for (size_t k = i + 1; k < nodes.size() && !takes(nodes[k]); ++k) products += nodes[k].op == Op::kLinearDw;
    found.products.push_back(products);
  }
  return found;
}

MeshSpec TensorRanks(ResidualSplit residual, int fsdp) {
  MeshSpec spec{.residual = residual};
  spec.mesh.set_size(Axis::kTp, 2);
  spec.mesh.set_size(Axis::kFsdp, fsdp);
  return spec;
}

TEST(Overlap, CollectivesOfABlocksBackwardHideBehindItsWeightsGradients) {
  for (const ResidualSplit residual : {ResidualSplit::kTokens, ResidualSplit::kWhole}) {
    for (const int fsdp : {1, 2}) {
      const Graph graph = StepOf(TensorRanks(residual, fsdp), /*lora=*/false, /*overlap=*/true);
      ASSERT_TRUE(Verify(graph).ok());
      const Hidden found = LookAt(graph);
      // Sums of gradients of activations, two in a block; if tokens are split it also gathers gradients: the first of
      // these is at the end of the previous block, and that of the part before the blocks at the end of this one.
      EXPECT_EQ(found.collectives, residual == ResidualSplit::kTokens ? 4 : 2);
      EXPECT_EQ(found.hidden, found.collectives);
      for (const int products : found.products) EXPECT_GE(products, 1);
    }
  }
}

TEST(Overlap, IsNotTriedIfTooLittleWorkCouldHideIt) {
  const Graph lora = StepOf(TensorRanks(ResidualSplit::kTokens, 1), /*lora=*/true, /*overlap=*/true);
  EXPECT_EQ(LookAt(lora).hidden, 0) << "the gradients of adapters take no time";
}

TEST(Overlap, IsNotTriedIfSwitchedOff) {
  const Graph in_line = StepOf(TensorRanks(ResidualSplit::kTokens, 1), /*lora=*/false, /*overlap=*/false);
  EXPECT_EQ(LookAt(in_line).hidden, 0);
}

// The sums of gradients over ranks in a step's Program.
struct Sums {
  std::map<int, int> of_micro_batch;     // how many are added up, by micro-batch
  std::map<std::string, int> gradients;  // and how often each, by name
  int in_line = 0;                       // of the collectives: blocking ones
  int awaited_at_once = 0;               // and those whose result is read in their block or the next
};
Sums SumsOf(const Program& step) {
  std::map<int64_t, const Buffer*> gradients;  // by address, which another value may have had before
  for (const Buffer& buffer : step.buffers) {
    if (buffer.role == Role::kGradient) gradients[buffer.offset.v] = &buffer;
  }
  Sums sums;
  std::vector<const Call*> calls;
  for (const Call& call : step.schedule) {
    if (call.kind == Call::Kind::kRun) calls.push_back(&call);
  }
  const auto binding_of = [&](size_t k) -> const Binding& {
    return step.bindings[static_cast<size_t>(calls[k]->binding)];
  };
  const auto segment_of = [&](size_t k) -> const Segment& {
    return step.segments[static_cast<size_t>(binding_of(k).segment)];
  };
  const auto address = [&](size_t k, int operand) { return binding_of(k).offsets[static_cast<size_t>(operand)].v; };
  for (size_t k = 0; k < calls.size(); ++k) {
    const std::vector<Instruction>& instructions = segment_of(k).instructions;
    for (size_t i = 0; i < instructions.size(); ++i) {
      const Instruction& sum = instructions[i];
      if (sum.op != Op::kAllReduce && sum.op != Op::kReduceScatter) continue;
      std::set<int64_t> given;
      for (const int operand : sum.outputs) {
        const auto it = gradients.find(address(k, operand));
        const TensorType& type = segment_of(k).operands[static_cast<size_t>(operand)];
        if (it == gradients.end() || !(it->second->type == type)) continue;
        given.insert(it->first);
        ++sums.gradients[it->second->name];
        ++sums.of_micro_batch[calls[k]->micro_batch];
      }
      if (given.empty()) continue;
      EXPECT_NE(segment_of(k).phase, Phase::kUpdate);
      sums.in_line += !sum.attributes.Flag("background");
      bool awaited = false;
      for (size_t later = k; later < std::min(k + 2, calls.size()); ++later) {
        if (segment_of(later).phase == Phase::kUpdate) break;
        const std::vector<Instruction>& after = segment_of(later).instructions;
        for (size_t j = later == k ? i + 1 : 0; j < after.size(); ++j) {
          if (IsCollective(after[j].op)) continue;
          for (const int operand : after[j].inputs) awaited |= given.contains(address(later, operand));
        }
      }
      sums.awaited_at_once += awaited;
    }
  }
  return sums;
}

Program StepOf(const MeshSpec& mesh, int micro_batches, bool lora) {
  const auto forward = [&](bool training) {
    const auto model = MakeModel(Wide());
    Graph graph = model->Forward({.tokens = 96, .row = 4, .training = training});
    if (lora) {
      const LoraConfig adapters{.r = 4, .alpha = 8};
      return AddLora(graph, Must(ResolveLora(model->modules(), adapters)), /*dropout=*/0);
    }
    TrainAllWeights(&graph);
    return graph;
  };
  const StepSpec spec{.micro_batches = micro_batches, .mesh = mesh};
  const Graph train = forward(true), eval = forward(false);
  return Must(CompileGraphs(TrainAndEval(train, eval), spec)).programs.first();
}

TEST(Overlap, SumsOncePerStepAreHiddenBehindTheLastMicroBatchsBackward) {
  MeshSpec copies, parts_once, both;
  copies.mesh.set_size(Axis::kDp, 2);
  parts_once.mesh.set_size(Axis::kFsdp, 2);
  parts_once.decisions.grad_sync = GradSync::kStep;
  both = copies;
  both.mesh.set_size(Axis::kFsdp, 2);
  both.decisions.grad_sync = GradSync::kStep;
  for (const MeshSpec& mesh : {copies, parts_once, both}) {
    for (const bool lora : {false, true}) {
      for (const int micro_batches : {1, 2, 4}) {
        SCOPED_TRACE(testing::Message() << mesh.mesh.ToString() << " lora " << lora << ", " << micro_batches);
        const Program step = StepOf(mesh, micro_batches, lora);
        Sums sums = SumsOf(step);
        ASSERT_EQ(sums.of_micro_batch.size(), 1u);
        EXPECT_EQ(sums.of_micro_batch.begin()->first, micro_batches - 1);
        EXPECT_EQ(sums.in_line, 0);
        EXPECT_EQ(sums.awaited_at_once, 0);
        for (const Buffer& buffer : step.buffers) {
          const bool terms = buffer.trainable && buffer.shard && !buffer.shard->partial.empty();
          if (!terms) continue;
          EXPECT_GE(sums.gradients[GradientName(buffer.name)], 1) << buffer.name;
        }
      }
    }
  }
}

TEST(Overlap, OnOneRankTheLastMicroBatchIsLikeTheOthers) {
  const Program step = StepOf(MeshSpec(), 4, /*lora=*/false);
  std::map<int, std::vector<int>> bindings;  // by micro-batch
  for (const Call& call : step.schedule) {
    if (call.kind == Call::Kind::kRun) bindings[call.micro_batch].push_back(call.binding);
  }
  EXPECT_EQ(bindings[2], bindings[3]);
}

}  // namespace
}  // namespace temper::tiny::overlap_test
