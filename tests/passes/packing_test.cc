// How much of the device's arena is lost to gaps between activations and scratch, in steps of real shapes: on one rank,
// on meshes, in pipelines, and with values in several tiers.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "../tiny_run.h"
#include "compile/layout/layout.h"
#include "compile/mesh/collectives.h"
#include "compile/mesh/ring.h"
#include "compile/step/differentiate.h"
#include "compile/step/fuse.h"
#include "graph/rule.h"
#include "model/lora_rewrite.h"

namespace temper::packing_test {
namespace {

using tiny::Must;

constexpr int kThreads = 2;

// The benchmark model: 12 layers, hidden 768, vocabulary 32000.
const char* const kLlama = R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 32000, "hidden_size": 768,
    "num_hidden_layers": 12, "num_attention_heads": 12, "num_key_value_heads": 4, "intermediate_size": 2048})";
const char* const kLlama8B = R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "hidden_size": 4096,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336})";
const char* const kOpt = R"({"architectures": ["OPTForCausalLM"], "hidden_size": 1024, "num_hidden_layers": 24,
    "ffn_dim": 4096, "num_attention_heads": 16, "word_embed_proj_dim": 512, "do_layer_norm_before": false})";

struct Configuration {
  const char* name;
  const char* model = kLlama;
  bool lora = false;
  DType dtype = DType::kBF16;
  Recompute recompute = Recompute::kNone;
  int blocks = kAllBlocks;
  int64_t tokens = 2048, row = 512;
  std::vector<std::pair<Axis, int>> mesh = {};
  ResidualSplit residual = ResidualSplit::kTokens;
  double dropout = 0;
};

std::vector<Configuration> Configurations() {
  constexpr auto kSelective = Recompute::kSelective, kBlock = Recompute::kBlock;
  return {
      {.name = "llama_full"},
      {.name = "llama_full_f32", .dtype = DType::kF32},
      {.name = "llama_full_selective", .recompute = kSelective},
      {.name = "llama_full_block", .recompute = kBlock},
      {.name = "llama_full_block_6", .recompute = kBlock, .blocks = 6},
      {.name = "llama_full_selective_4", .recompute = kSelective, .blocks = 4},
      {.name = "llama_full_one_row", .tokens = 1024, .row = 1024},
      {.name = "llama_full_short_rows", .tokens = 8192, .row = 128},
      {.name = "llama_full_fsdp4", .mesh = {{Axis::kFsdp, 4}}},
      {.name = "llama_full_fsdp4_block", .recompute = kBlock, .mesh = {{Axis::kFsdp, 4}}},
      {.name = "llama_full_tp2", .mesh = {{Axis::kTp, 2}}},
      {.name = "llama_full_tp2_whole_selective",
       .recompute = kSelective,
       .mesh = {{Axis::kTp, 2}},
       .residual = ResidualSplit::kWhole},
      {.name = "llama_full_fsdp2_tp2", .mesh = {{Axis::kFsdp, 2}, {Axis::kTp, 2}}},
      {.name = "llama_full_cp2", .mesh = {{Axis::kCp, 2}}},
      {.name = "llama_lora", .lora = true},
      {.name = "llama_lora_dropout", .lora = true, .dropout = 0.05},
      {.name = "llama_lora_f32_selective", .lora = true, .dtype = DType::kF32, .recompute = kSelective},
      {.name = "llama_lora_block", .lora = true, .recompute = kBlock},
      {.name = "llama_lora_dropout_block_3", .lora = true, .recompute = kBlock, .blocks = 3, .dropout = 0.05},
      {.name = "llama_lora_fsdp4", .lora = true, .mesh = {{Axis::kFsdp, 4}}},
      {.name = "llama_8b_full_block", .model = kLlama8B, .recompute = kBlock, .tokens = 4096, .row = 4096},
      {.name = "llama_8b_lora_selective",
       .model = kLlama8B,
       .lora = true,
       .recompute = kSelective,
       .tokens = 4096,
       .row = 4096},
      {.name = "llama_8b_full_fsdp8_selective",
       .model = kLlama8B,
       .recompute = kSelective,
       .tokens = 16384,
       .row = 2048,
       .mesh = {{Axis::kFsdp, 8}}},
      {.name = "opt_full", .model = kOpt},
      {.name = "opt_full_f32_selective", .model = kOpt, .dtype = DType::kF32, .recompute = kSelective},
      {.name = "opt_full_block", .model = kOpt, .recompute = kBlock},
      {.name = "opt_full_block_12", .model = kOpt, .recompute = kBlock, .blocks = 12},
      {.name = "opt_full_fsdp2", .model = kOpt, .mesh = {{Axis::kFsdp, 2}}},
      {.name = "opt_full_tp2", .model = kOpt, .mesh = {{Axis::kTp, 2}}},
      {.name = "opt_lora", .model = kOpt, .lora = true},
      {.name = "opt_lora_dropout_selective", .model = kOpt, .lora = true, .recompute = kSelective, .dropout = 0.05},
      {.name = "opt_lora_tp2_block", .model = kOpt, .lora = true, .recompute = kBlock, .mesh = {{Axis::kTp, 2}}},
  };
}

Graph StepOf(const Configuration& c, bool accumulate) {
  const auto model = tiny::MakeModel(c.model);
  Graph graph = model->Forward({.dtype = c.dtype, .tokens = c.tokens, .row = c.row, .training = c.dropout > 0});
  if (c.lora) {
    graph = AddLora(graph, Must(ResolveLora(model->modules(), {})), c.dropout);
  } else {
    TrainAllWeights(&graph);
  }
  if (!c.mesh.empty()) {
    Mesh mesh;
    for (const auto& [axis, size] : c.mesh) mesh.set_size(axis, size);
    graph = Must(PartitionByRules(graph, {.mesh = mesh, .residual = c.residual}, {}));
  }
  const RecomputeSpec recompute{
      .mode = c.recompute, .blocks = c.blocks, .gathered_blocks = c.mesh.empty() ? kAllBlocks : 0};
  // Blocking collectives; background ones make lifetimes longer, but not different.
  return UpdateInPlace(ScheduleCollectives(
      LowerRings(RecomputeBlocks(Differentiate(Fuse(graph), accumulate), recompute), {.background = false}),
      {.background = false}));
}

// The maximum of activations and scratch at one node: no packing can take less.
Bytes MostAlive(const Graph& graph) {
  std::vector<int64_t> change(graph.nodes().size() + 1, 0);
  std::vector<int64_t> begin(static_cast<size_t>(graph.num_values()), -1), end = begin;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    for (const auto* list : {&graph.nodes()[i].inputs, &graph.nodes()[i].outputs}) {
      for (const ValueId id : *list) {
        const auto root = static_cast<size_t>(graph.Root(id));
        if (begin[root] < 0) begin[root] = static_cast<int64_t>(i);
        end[root] = static_cast<int64_t>(i);
      }
    }
  }
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    const auto k = static_cast<size_t>(id);
    if (graph.value(id).role != Role::kActivation || begin[k] < 0) continue;
    const int64_t bytes = AlignUp(graph.value(id).type.bytes(), kAlignment).v;
    change[static_cast<size_t>(begin[k])] += bytes;
    change[static_cast<size_t>(end[k]) + 1] -= bytes;
  }
  int64_t alive = 0, most = 0;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    alive += change[i];
    most = std::max(most, alive + AlignUp(WorkspaceOf(graph, graph.nodes()[i], kThreads), kAlignment).v);
  }
  return {most};
}

TEST(Packing, LosesAlmostNothingBetweenActivationsAndScratch) {
  const std::vector<Configuration> all = Configurations();
  ASSERT_GE(all.size(), 20u);
  for (const Configuration& c : all) {
    const Graph first = StepOf(c, false), rest = StepOf(c, true);
    for (const Graph* graph : {&first, &rest}) {
      ASSERT_TRUE(Verify(*graph).ok()) << c.name << ": " << Verify(*graph).message();
      const double span = static_cast<double>(LayOut(*graph, {}, kThreads).in(Tier::kDevice).span.v);
      const double bound = static_cast<double>(MostAlive(*graph).v);
      EXPECT_GE(span, bound) << c.name;
      EXPECT_LE(span, 1.025 * bound) << c.name << ", accumulating " << (graph == &rest);
      RecordProperty(c.name, fmt::format("{:.4f}", span / bound));
    }
  }
}

// The maximum of live memory on the device in a step, from the Program's addresses: values
// above the persistent buffers, from the instruction that writes them to the last that
// reads them, and scratch of running instructions. A background instruction keeps its
// inputs alive until its result is needed, or until the segment after its own has ended.
Bytes MostAlive(const Program& p, Bytes persistent) {
  struct Run {
    const Binding* binding;
    const Segment* segment;
    size_t instruction, last;  // last: the last at which it may still run
    const Instruction& op() const { return segment->instructions[instruction]; }
    Bytes At(int k) const { return binding->offsets[static_cast<size_t>(k)]; }
    Bytes SizeOf(int k) const { return AlignUp(segment->operands[static_cast<size_t>(k)].bytes(), kAlignment); }
  };
  std::vector<Run> runs;
  std::vector<size_t> ends;  // of segments, in order of execution
  for (const Call& call : p.schedule) {
    if (call.kind != Call::Kind::kRun) continue;
    const Binding& binding = p.bindings[static_cast<size_t>(call.binding)];
    const Segment& segment = p.segments[static_cast<size_t>(binding.segment)];
    for (size_t i = 0; i < segment.instructions.size(); ++i) runs.push_back({&binding, &segment, i, runs.size()});
    ends.push_back(runs.size());
  }
  size_t segment = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    while (ends[segment] <= i) ++segment;
    if (!runs[i].op().attributes.Flag("background")) continue;
    const size_t limit = ends[std::min(segment + 1, ends.size() - 1)];
    const auto needs = [&](const Run& later) {
      return std::any_of(later.op().inputs.begin(), later.op().inputs.end(), [&](int in) {
        return std::any_of(runs[i].op().outputs.begin(), runs[i].op().outputs.end(),
                           [&](int out) { return later.At(in) == runs[i].At(out); });
      });
    };
    while (runs[i].last + 1 < limit && !needs(runs[runs[i].last + 1])) ++runs[i].last;
  }
  std::vector<int64_t> change(runs.size() + 1, 0);
  const auto count = [&](size_t begin, size_t last, Bytes size) {
    change[begin] += size.v;
    change[last + 1] -= size.v;
  };
  struct Life {
    size_t begin, last;
    Bytes size;
  };
  std::map<int64_t, Life> lives;  // by address
  for (size_t i = 0; i < runs.size(); ++i) {
    const Run& run = runs[i];
    const auto counts = [&](int k) {
      return TierOf(run.At(k)) == Tier::kDevice && run.At(k) >= persistent && run.SizeOf(k).v > 0;
    };
    for (const int k : run.op().inputs) {
      const auto it = lives.find(run.At(k).v);
      if (counts(k) && it != lives.end()) it->second.last = std::max(it->second.last, run.last);
    }
    for (const int k : run.op().outputs) {
      const auto& in = run.op().inputs;
      if (!counts(k) || std::find(in.begin(), in.end(), k) != in.end()) continue;  // in place: the same life
      if (const auto it = lives.find(run.At(k).v); it != lives.end()) {
        count(it->second.begin, std::min(it->second.last, i - 1), it->second.size);
      }
      lives[run.At(k).v] = {i, i, run.SizeOf(k)};
    }
    const Bytes scratch = ScratchOf(p, *run.segment, run.op());
    if (TierOf(run.binding->scratch[run.instruction]) == Tier::kDevice) {
      count(i, run.last, AlignUp(scratch, kAlignment));
    }
  }
  for (const auto& [address, life] : lives) count(life.begin, life.last, life.size);
  int64_t alive = 0, most = 0;
  for (const int64_t c : change) most = std::max(most, alive += c);
  return Bytes{most};
}

struct Whole {
  const char* name;
  bool lora = false;
  DType dtype = DType::kBF16;
  Recompute recompute = Recompute::kNone;
  std::vector<std::pair<Axis, int>> mesh = {};
  PipelineKind pipeline = PipelineKind::kOneForwardOneBackward;
  double device = 0;  // a limit, as a fraction of the run's memory without one
  MemorySpec memory = {};
};

std::vector<Whole> Wholes() {
  constexpr auto kSelective = Recompute::kSelective, kBlock = Recompute::kBlock;
  constexpr auto kF32 = DType::kF32;
  return {
      {.name = "full"},
      {.name = "full_f32", .dtype = kF32},
      {.name = "full_selective", .recompute = kSelective},
      {.name = "full_block", .recompute = kBlock},
      {.name = "full_f32_block", .dtype = kF32, .recompute = kBlock},
      {.name = "lora", .lora = true},
      {.name = "lora_f32_selective", .lora = true, .dtype = kF32, .recompute = kSelective},
      {.name = "lora_block", .lora = true, .recompute = kBlock},
      {.name = "full_fsdp4", .mesh = {{Axis::kFsdp, 4}}},
      {.name = "full_fsdp4_block", .recompute = kBlock, .mesh = {{Axis::kFsdp, 4}}},
      {.name = "lora_fsdp2_selective", .lora = true, .recompute = kSelective, .mesh = {{Axis::kFsdp, 2}}},
      {.name = "full_tp2", .mesh = {{Axis::kTp, 2}}},
      {.name = "full_fsdp2_tp2", .mesh = {{Axis::kFsdp, 2}, {Axis::kTp, 2}}},
      {.name = "full_cp2", .mesh = {{Axis::kCp, 2}}},
      {.name = "full_pp2", .mesh = {{Axis::kPp, 2}}},
      {.name = "full_pp2_block", .recompute = kBlock, .mesh = {{Axis::kPp, 2}}},
      {.name = "lora_pp4", .lora = true, .mesh = {{Axis::kPp, 4}}},
      {.name = "full_pp2_gpipe_fsdp2", .mesh = {{Axis::kPp, 2}, {Axis::kFsdp, 2}}, .pipeline = PipelineKind::kGpipe},
      {.name = "full_at_host", .memory = {.policy = TierPolicy::kHost}},
      {.name = "full_block_at_host", .recompute = kBlock, .memory = {.policy = TierPolicy::kHost}},
      {.name = "full_optimizer_at_host", .memory = {.optimizer = Tier::kHost}},
      {.name = "full_activations_at_host", .memory = {.activations = Tier::kHost}},
      {.name = "lora_weights_on_disk", .lora = true, .memory = {.weights = Tier::kDisk}},
      {.name = "full_auto_half", .recompute = kBlock, .device = 0.5},
      {.name = "full_f32_auto_half", .dtype = kF32, .recompute = kSelective, .device = 0.5},
      {.name = "lora_auto_two_thirds", .lora = true, .device = 0.67},
  };
}

std::vector<Program> Compiled(const Whole& c, const MemorySpec& memory) {
  const auto model = tiny::MakeModel(kLlama);
  StepSpec step{.micro_batches = 4, .recompute = c.recompute, .threads = kThreads, .memory = memory};
  for (const auto& [axis, size] : c.mesh) step.mesh.mesh.set_size(axis, size);
  step.mesh.pipeline.kind = c.pipeline;
  const int64_t tokens = 1024 * step.mesh.mesh.size(DataAxes(step.mesh.mesh));
  Graph forward = model->Forward({.dtype = c.dtype, .tokens = tokens, .row = 512, .training = true});
  Graph eval = forward;
  if (c.lora) {
    forward = AddLora(forward, Must(ResolveLora(model->modules(), {})), 0);
    eval = AddLora(eval, Must(ResolveLora(model->modules(), {})), 0);
  } else {
    TrainAllWeights(&forward);
  }
  return Must(CompileGraphs(TrainAndEval(forward, eval), step)).programs.all();
}

TEST(Packing, ArenasAreWithinThreePercentOfTheirLiveMemory) {
  const std::vector<Whole> all = Wholes();
  ASSERT_GE(all.size(), 20u);
  for (const Whole& c : all) {
    SCOPED_TRACE(c.name);
    MemorySpec memory = c.memory;
    if (c.device > 0) {
      memory.device = {static_cast<int64_t>(static_cast<double>(Compiled(c, memory)[0].arena_bytes.v) * c.device)};
    }
    const std::vector<Program> programs = Compiled(c, memory);
    Bytes persistent{}, alive{};
    for (const Program& p : programs) {
      for (const Buffer& b : p.buffers) {
        if (b.tier() == Tier::kDevice)
          persistent = std::max(persistent, AlignUp(b.offset + b.type.bytes(), kAlignment));
      }
    }
    for (const Program& p : programs) alive = std::max(alive, MostAlive(p, persistent));
    const double arena = static_cast<double>(programs[0].arena_bytes.v);
    const double bound = static_cast<double>((persistent + alive).v);
    EXPECT_GE(arena, bound);
    // A pipeline has slots for all micro-batches in flight, even if only a part of a slot is in use.
    const bool has_slots =
        std::any_of(c.mesh.begin(), c.mesh.end(), [](const auto& m) { return m.first == Axis::kPp; });
    EXPECT_LE(arena, (has_slots ? 1.04 : 1.03) * bound);
    RecordProperty(c.name, fmt::format("{:.4f}", arena / bound));
  }
}

}  // namespace
}  // namespace temper::packing_test
