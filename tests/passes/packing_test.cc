// How much of the device's arena is lost between activations, in the steps of real shapes on one rank and on meshes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "../tiny_run.h"
#include "compile/collectives.h"
#include "compile/differentiate.h"
#include "compile/fuse.h"
#include "compile/layout.h"
#include "compile/ring.h"

namespace temper {
namespace {

using tiny::Must;

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
    graph = AddLora(graph, Must(ResolveLoraTargets(graph, {})), c.dropout);
  } else {
    TrainAllWeights(&graph);
  }
  if (!c.mesh.empty()) {
    Mesh mesh;
    for (const auto& [axis, size] : c.mesh) mesh.set_size(axis, size);
    graph = Must(PartitionByRules(graph, {.mesh = mesh, .residual = c.residual}, WithDefaults({}, c.residual)));
  }
  const RecomputeSpec recompute{.mode = c.recompute, .blocks = c.blocks, .gather_weights_again = !c.mesh.empty()};
  // Collectives where they are needed: with those in the background lifetimes are longer, but of the same kind.
  return UpdateInPlace(ScheduleCollectives(
      LowerRings(RecomputeBlocks(Differentiate(Fuse(graph), accumulate), recompute), {.background = false}),
      {.background = false}));
}

// The most that activations take at one node: no packing spans less.
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
  for (const int64_t c : change) most = std::max(most, alive += c);
  return {most};
}

TEST(Packing, LosesAlmostNothingBetweenActivations) {
  const std::vector<Configuration> all = Configurations();
  ASSERT_GE(all.size(), 20u);
  for (const Configuration& c : all) {
    const Graph first = StepOf(c, false), rest = StepOf(c, true);
    for (const Graph* graph : {&first, &rest}) {
      ASSERT_TRUE(Verify(*graph).ok()) << c.name << ": " << Verify(*graph).message();
      const double span = static_cast<double>(LayOut(*graph, {}, 2).in(Tier::kDevice).span.v);
      const double bound = static_cast<double>(MostAlive(*graph).v);
      EXPECT_GE(span, bound) << c.name;
      EXPECT_LE(span, 1.005 * bound) << c.name << ", accumulating " << (graph == &rest);
      RecordProperty(c.name, fmt::format("{:.4f}", span / bound));
    }
  }
}

}  // namespace
}  // namespace temper
