#include "compile/layout/addresses.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/env.h"
#include "compile/step/differentiate.h"
#include "compile/step/fuse.h"
#include "compile/train_step.h"
#include "graph/builder.h"
#include "graph/named_ops.h"
#include "graph/rule.h"
#include "program/buffer_names.h"

namespace temper::addresses_test {
namespace {

constexpr int64_t D = 8, V = 32;

// `blocks` residual blocks over `tokens` tokens, tied head.
Graph Net(int64_t tokens, int blocks, bool trainable = true) {
  Graph graph;
  GraphBuilder build(&graph);
  const auto weight = [&](const std::string& name, Shape shape) {
    const ValueId id = build.Source(name, {DType::kBF16, shape}, Role::kWeight);
    graph.value(id).trainable = trainable;
    return id;
  };
  const ValueId token = build.TokenInput("token", DType::kI32, tokens);
  const ValueId target = build.TokenInput("target", DType::kI32, tokens);
  const ValueId table = weight("table", {V, D});
  ValueId x = build.Embedding(table, token, 0, "x");
  for (int b = 0; b < blocks; ++b) {
    const std::string p = "block" + std::to_string(b) + ".";
    build.EnterBlock(b, p);
    ValueId h = build.RmsNorm(x, weight(p + "norm", {D}), 1e-5, "norm");
    h = build.Add(Op::kRelu, {build.Linear(h, weight(p + "up", {4 * D, D}), kNoValue, "up")}, {}, "relu")[0];
    x = build.Sum(x, build.Linear(h, weight(p + "down", {D, 4 * D}), kNoValue, "down"), "sum");
  }
  build.EnterBlock(kBlockAfter, "");
  build.Add(Op::kLinearCrossEntropy, {x, table, target}, {}, "loss", Role::kOutput);
  return graph;
}

std::vector<Program> Compile(int64_t train_tokens, int64_t eval_tokens, int blocks, const StepSpec& spec) {
  const Graph train = Net(train_tokens, blocks), eval = Net(eval_tokens, blocks, false);
  const auto compiled = CompileGraphs(TrainAndEval(train, eval), spec);
  TEMPER_CHECK(compiled.ok()) << compiled.status().message();
  return compiled->programs.all();
}

TEST(Addresses, TrainAndEvalShareWeightsAndOneArena) {
  const auto programs = Compile(64, 128, 3, {.micro_batches = 2, .threads = 2});
  ASSERT_EQ(programs.size(), 2u);
  const Program &train = programs[0], &eval = programs[1];
  EXPECT_EQ(train.name, "train");
  EXPECT_EQ(eval.name, "eval");
  EXPECT_EQ(train.arena_bytes, eval.arena_bytes);
  for (const Buffer& b : eval.buffers) {
    if (b.role != Role::kWeight) continue;
    const int i = train.FindBuffer(b.name);
    ASSERT_GE(i, 0) << b.name;
    EXPECT_EQ(train.buffers[static_cast<size_t>(i)].offset, b.offset) << b.name;
  }
  EXPECT_EQ(eval.FindBuffer(GradientName("table")), -1) << "evaluation has no gradients";
  EXPECT_EQ(eval.FindBuffer("adam_m:table"), -1);
}

// Programs of one step with rows of two lengths: several micro-batches add to the same gradients, a single one has its
// own.
TEST(Addresses, ProgramsOfShorterRowsShareWhatLivesAcrossMicroBatches) {
  for (const int micro_batches : {1, 3}) {
    const Graph train = Net(256, 2), shorter = Net(64, 2), eval = Net(64, 2, false);
    const std::vector<RunGraph> graphs = {
        {"train", &train, /*trains=*/true}, {"eval", &eval}, {"train.64", &shorter, /*trains=*/true}};
    const auto compiled = CompileGraphs(graphs, {.micro_batches = micro_batches});
    ASSERT_TRUE(compiled.ok()) << compiled.status().message();
    const Program &whole = compiled->programs.At("train"), &part = compiled->programs.At("train.64");
    EXPECT_EQ(whole.arena_bytes, part.arena_bytes);
    const Program alone = Compile(256, 64, 2, {.micro_batches = micro_batches})[0];
    EXPECT_EQ(whole.arena_bytes, alone.arena_bytes) << "shorter rows take no memory of their own";
    int gradients = 0, others = 0;
    for (const Buffer& b : part.buffers) {
      const Buffer& same = whole.buffers[static_cast<size_t>(whole.FindBuffer(b.name))];
      gradients += b.role == Role::kGradient;
      EXPECT_EQ(b.transient, same.transient) << b.name;
      if (b.transient) continue;
      EXPECT_EQ(b.offset, same.offset) << b.name;
      ++others;
    }
    EXPECT_EQ(gradients, 7);
    EXPECT_GT(others, 20);
  }
}

TEST(Addresses, BuffersOfWholeBlocksAreAlignedToBlocks) {
  const Program program = Compile(2048, 64, 3, {.micro_batches = 2})[0];
  Bytes sum;
  int whole = 0;
  for (const Buffer& b : program.buffers) {
    const bool blocks = b.type.bytes().v % kDirectBlock == 0;
    whole += blocks;
    EXPECT_TRUE(!blocks || b.offset.v % kDirectBlock == 0) << b.name << " at " << b.offset.v;
    sum += AlignUp(b.type.bytes(), kAlignment);
  }
  EXPECT_GT(whole, 0);
  EXPECT_LT(whole, std::ssize(program.buffers));
  for (const Buffer& b : program.buffers) EXPECT_LE(b.offset + b.type.bytes(), sum + KiB(16)) << b.name;
}

// Programs never overlap in time.
TEST(Addresses, InputsOfDifferentSizesAreBuffersAtOnePlace) {
  for (const auto& [train_tokens, eval_tokens] : {std::pair(64, 128), {128, 64}, {64, 64}}) {
    const auto programs = Compile(train_tokens, eval_tokens, 1, {});
    const Buffer& train = programs[0].buffers[static_cast<size_t>(programs[0].FindBuffer("token"))];
    const Buffer& eval = programs[1].buffers[static_cast<size_t>(programs[1].FindBuffer("token"))];
    EXPECT_EQ(train.type.shape[0], train_tokens);
    EXPECT_EQ(eval.type.shape[0], eval_tokens);
    EXPECT_EQ(train.offset, eval.offset);
    for (const Program& program : programs) {
      const Bytes begin = program.buffers[static_cast<size_t>(program.FindBuffer("token"))].offset;
      for (const Buffer& other : program.buffers) {
        if (other.name == "token" || other.transient) continue;
        EXPECT_TRUE(other.offset + other.type.bytes() <= begin || other.offset >= begin + Bytes{4 * 128} ||
                    train_tokens + eval_tokens < 192)
            << other.name << " in the room of the larger one";
      }
    }
  }
}

TEST(Addresses, BlocksOfOneStructureShareSegments) {
  const auto few = Compile(64, 64, 2, {.micro_batches = 2}), many = Compile(64, 64, 9, {.micro_batches = 2});
  EXPECT_EQ(few[0].segments.size(), many[0].segments.size()) << "segments do not grow with depth";
  EXPECT_EQ(few[1].segments.size(), many[1].segments.size());
  EXPECT_GT(many[0].bindings.size(), few[0].bindings.size());
}

TEST(Addresses, TheScheduleLoadsRunsAndStoresEachMicroBatchThenUpdates) {
  const Program train = Compile(64, 64, 1, {.micro_batches = 3})[0];
  std::string order;
  for (const Call& call : train.schedule) {
    const char kind = "rLSU"[static_cast<size_t>(call.kind)];
    if (kind == 'r' && order.ends_with('r')) continue;
    order += kind;
    if (kind == 'L' || kind == 'S') order += static_cast<char>('0' + call.micro_batch);
  }
  EXPECT_EQ(order, "L0rS0L1rS1L2rS2rUr") << "sums of squares change no weight";
  bool updating = false;
  for (const Call& call : train.schedule) {
    updating |= call.kind == Call::Kind::kBeforeUpdate;
    if (call.kind != Call::Kind::kRun) continue;
    const Binding& binding = train.bindings[static_cast<size_t>(call.binding)];
    const Segment& segment = train.segments[static_cast<size_t>(binding.segment)];
    const bool updates = std::any_of(segment.instructions.begin(), segment.instructions.end(),
                                     [](const Instruction& i) { return i.op == Op::kAdamw; });
    EXPECT_EQ(updates, updating);
  }
}

// The peak of activations and scratch over the nodes of `graph`: no layout can span less.
Bytes MostAlive(const Graph& graph, int threads) {
  const auto& nodes = graph.nodes();
  std::vector<int> begin(static_cast<size_t>(graph.num_values()), -1), end = begin;
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const auto* list : {&nodes[i].inputs, &nodes[i].outputs}) {
      for (ValueId id : *list) {
        const auto root = static_cast<size_t>(graph.Root(id));
        if (begin[root] < 0) begin[root] = static_cast<int>(i);
        end[root] = static_cast<int>(i);
      }
    }
  }
  Bytes most{};
  for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
    Bytes alive = AlignUp(WorkspaceOf(graph, nodes[static_cast<size_t>(i)], threads), kAlignment);
    for (ValueId id = 0; id < graph.num_values(); ++id) {
      const auto k = static_cast<size_t>(id);
      if (graph.value(id).role != Role::kActivation || begin[k] < 0 || begin[k] > i || end[k] < i) continue;
      alive += AlignUp(graph.value(id).type.bytes(), kAlignment);
    }
    most = std::max(most, alive);
  }
  return most;
}

TEST(Addresses, PackingLeavesFewGapsInAStep) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kBlock}) {
    for (const bool accumulate : {false, true}) {
      for (const bool in_place : {false, true}) {
        Graph graph = RecomputeBlocks(Differentiate(Fuse(Net(512, 6)), accumulate), {.mode = recompute});
        if (in_place) graph = UpdateInPlace(graph);
        const auto programs = AssignAddresses(std::vector<ProgramPlan>{{"step", {{&graph, 0, 1}}}}, 2);
        ASSERT_TRUE(programs.ok()) << programs.status().message();
        const Program& p = (*programs)[0];
        Bytes persistent{};
        for (const Buffer& b : p.buffers)
          persistent = std::max(persistent, AlignUp(b.offset + b.type.bytes(), kAlignment));
        const double span = static_cast<double>((p.arena_bytes - persistent).v);
        const double bound = static_cast<double>(MostAlive(graph, 2).v);
        EXPECT_GE(span, bound);
        EXPECT_LE(span, 1.03 * bound);
        EXPECT_FALSE(p.peak_instruction.empty());
        EXPECT_LE(p.peak.total(), p.arena_bytes);
      }
    }
  }
}

TEST(Addresses, RecomputingTakesLessMemoryAndMoreArithmetic) {
  const auto keep = Compile(512, 512, 8, {}), again = Compile(512, 512, 8, {.recompute = Recompute::kBlock});
  EXPECT_LT(again[0].arena_bytes, keep[0].arena_bytes);
  EXPECT_GT(CostOfStep(again[0]).flops.v, CostOfStep(keep[0]).flops.v);
}

TEST(Addresses, RefusesPlansThatDisagreeAboutABuffer) {
  const Graph train = Net(64, 1);
  Graph other = Net(64, 1, false);
  ASSERT_TRUE(CompileGraphs(TrainAndEval(train, other), {}).ok());
  other.value(other.FindSource("block0.norm")).role = Role::kAdapter;
  const auto role = CompileGraphs(TrainAndEval(train, other), {});
  ASSERT_FALSE(role.ok());
  EXPECT_NE(role.status().message().find("block0.norm"), std::string::npos) << role.status().message();
}

TEST(Addresses, MemoryClassesSumToTheSizeOfTheBuffers) {
  const Program train = Compile(64, 64, 2, {.micro_batches = 2})[0];
  Bytes weights{}, gradients{}, optimizer{};
  int64_t elements = 0;
  for (const Buffer& b : train.buffers) {
    const Bytes bytes = AlignUp(b.type.bytes(), kAlignment);
    if (b.role == Role::kWeight) weights += bytes;
    if (b.role == Role::kWeight) elements += b.type.shape.elements();
    if (b.role == Role::kGradient) gradients += bytes;
    if (b.role == Role::kOptimizerState) optimizer += bytes;
  }
  EXPECT_EQ(train.peak.weights, weights);
  EXPECT_EQ(train.peak.gradients, gradients);
  EXPECT_EQ(train.peak.optimizer, optimizer);
  const int64_t padding = 3 * 5 * kAlignment;  // at most, of the five weights
  EXPECT_NEAR(static_cast<double>(weights.v), 2.0 * static_cast<double>(elements), padding);
  EXPECT_NEAR(static_cast<double>(gradients.v), 4.0 * static_cast<double>(elements), padding) << "f32";
  EXPECT_NEAR(static_cast<double>(optimizer.v), 12.0 * static_cast<double>(elements), padding)
      << "f32 master copies and two moments";
}

// Their bytes are used by other values at the start of the step, and only by them from their first write to its end.
TEST(Addresses, GradientsOfOneMicroBatchReuseMemoryOfActivations) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kBlock}) {
    SCOPED_TRACE(ToString(recompute));
    const Program once = Compile(512, 64, 6, {.recompute = recompute})[0];
    const Program more = Compile(512, 64, 6, {.micro_batches = 2, .recompute = recompute})[0];
    Bytes gradients{};
    for (const Buffer& b : more.buffers) EXPECT_FALSE(b.transient) << b.name;
    for (const Buffer& b : once.buffers) {
      EXPECT_EQ(b.transient, b.role == Role::kGradient) << b.name;
      if (b.transient) gradients += AlignUp(b.type.bytes(), kAlignment);
    }
    EXPECT_EQ(more.peak.gradients, gradients);
    EXPECT_LT(once.peak.gradients, gradients) << "memory peaks when the backward begins";
    EXPECT_LT(once.arena_bytes + gradients / 2, more.arena_bytes);
    EXPECT_LE(once.peak.total(), once.arena_bytes);

    struct Write {
      Bytes begin, end;
      bool adds;  // to the existing bytes
    };
    std::vector<Write> writes;  // of the step, in its order
    for (const Call& call : once.schedule) {
      if (call.kind != Call::Kind::kRun) continue;
      const Binding& binding = once.bindings[static_cast<size_t>(call.binding)];
      const Segment& segment = once.segments[static_cast<size_t>(binding.segment)];
      for (size_t i = 0; i < segment.instructions.size(); ++i) {
        const Instruction& instruction = segment.instructions[i];
        for (const int k : instruction.outputs) {
          const Bytes begin = binding.offsets[static_cast<size_t>(k)];
          const auto& inputs = instruction.inputs;
          writes.push_back({begin, begin + segment.operands[static_cast<size_t>(k)].bytes(),
                            std::find(inputs.begin(), inputs.end(), k) != inputs.end()});
        }
        const Bytes scratch = ScratchOf(once, segment, instruction);
        if (scratch.v > 0) writes.push_back({binding.scratch[i], binding.scratch[i] + scratch, false});
      }
    }
    int after_others = 0;
    for (const Buffer& b : once.buffers) {
      if (!b.transient) continue;
      const Bytes end = b.offset + b.type.bytes();
      const auto meets = [&](const Write& w) { return w.begin < end && b.offset < w.end; };
      auto write = writes.rbegin();
      for (; write != writes.rend(); ++write) {
        if (!meets(*write)) continue;
        ASSERT_TRUE(write->begin == b.offset && write->end == end) << b.name << " is written over in part";
        if (!write->adds) break;
      }
      ASSERT_NE(write, writes.rend()) << b.name << " is never written";
      after_others += std::any_of(write + 1, writes.rend(), meets);
    }
    EXPECT_GT(after_others, 0);
  }
}

TEST(CompileGraphs, RefusesAMeshThatSplitsWhatAnOptimizerNeedsWhole) {
  for (const auto& [op, wanted] : {
           std::pair{Op::kMuon, "optimizer muon works on whole matrices, and mesh fsdp=2 splits table"},
           std::pair{Op::kAdamw8bit,
                     "optimizer adamw_8bit keeps states in blocks of 256 elements, which have to be whole, and mesh "
                     "fsdp=2 splits "},
       }) {
    StepSpec spec{.update = {.rule = UpdateRuleOf(op), .settings = UpdateSettings(op)}};
    spec.mesh.mesh.set_size(Axis::kFsdp, 2);
    spec.mesh.rules = {{"norm", "fsdp"}, {".", "fsdp,-"}};
    const Graph train = Net(8, 2), eval = Net(8, 2, false);
    const auto refused = CompileGraphs(TrainAndEval(train, eval), spec);
    ASSERT_EQ(refused.status().code(), StatusCode::kUnsupported) << refused.status().message();
    EXPECT_NE(refused.status().message().find(wanted), std::string::npos) << refused.status().message();
  }
}

TEST(CompileGraphs, VectorsDoNotDecayAndEveryTrainableValueIsUpdated) {
  const Graph update = BuildUpdate(Net(8, 2), {.weight_decay = 0.1}, Mesh());
  ASSERT_TRUE(Verify(update).ok()) << Verify(update).message();
  int updates = 0;
  for (const Node& n : update.nodes()) {
    if (n.op != Op::kAdamw) continue;
    ++updates;
    const Value& master = update.value(n.inputs[0]);
    EXPECT_EQ(n.attributes.Double("weight_decay"), master.type.shape.rank() >= 2 ? 0.1 : 0.0) << master.name;
  }
  EXPECT_EQ(updates, 1 + 2 * 3);
}

}  // namespace
}  // namespace temper::addresses_test
