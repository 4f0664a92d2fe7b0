// Compiled steps of real models: checks the form of their graphs and Programs, without running them.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "../tiny_run.h"
#include "compile/layout/addresses.h"
#include "compile/step/differentiate.h"
#include "compile/step/fuse.h"
#include "graph/named_ops.h"
#include "model/lora_rewrite.h"

namespace temper::real_steps_test {
namespace {

using tiny::Must;

// The benchmark model: 12 layers, hidden 768, vocabulary 32000, 2,048 tokens.
const char* const kBenchmark = R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 32000, "hidden_size": 768,
    "num_hidden_layers": 12, "num_attention_heads": 12, "num_key_value_heads": 4, "intermediate_size": 2048})";
const char* const kOpt350 = R"({"architectures": ["OPTForCausalLM"], "hidden_size": 1024, "num_hidden_layers": 24,
    "ffn_dim": 4096, "num_attention_heads": 16, "word_embed_proj_dim": 512, "do_layer_norm_before": false})";

Graph StepGraph(const Model& model, bool lora, bool accumulate, Recompute recompute, double dropout = 0.05) {
  Graph forward = model.Forward({.dtype = DType::kBF16, .tokens = 2048, .row = 512});
  if (lora) {
    forward = AddLora(forward, Must(ResolveLora(model.modules(), {})), dropout);
  } else {
    TrainAllWeights(&forward);
  }
  return UpdateInPlace(RecomputeBlocks(Differentiate(Fuse(forward), accumulate), {.mode = recompute}));
}

// The maximum of activations at one node.
Bytes MostAlive(const Graph& graph) {
  const size_t n = graph.nodes().size();
  std::vector<int64_t> change(n + 1, 0);
  std::vector<int64_t> begin(static_cast<size_t>(graph.num_values()), -1), end = begin;
  for (size_t i = 0; i < n; ++i) {
    for (const auto* list : {&graph.nodes()[i].inputs, &graph.nodes()[i].outputs}) {
      for (ValueId id : *list) {
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
  for (int64_t c : change) most = std::max(most, alive += c);
  return {most};
}

TEST(RealSteps, ALoraStepKeepsNoActivationThatOnlyAFrozenWeightsGradientNeeds) {
  const auto model = tiny::MakeModel(kBenchmark);
  const Graph graph = StepGraph(*model, true, false, Recompute::kNone);
  for (const Node& n : graph.nodes()) {
    if (n.op == Op::kLinearDw || n.op == Op::kLinearsDw) {
      for (const ValueId d_w : n.outputs) {
        EXPECT_NE(graph.value(d_w).name.find("lora_"), std::string::npos) << graph.value(d_w).name;
      }
    }
    EXPECT_NE(n.op, Op::kEmbeddingBackward);
    if (n.op == Op::kRmsNormBackward) {
      EXPECT_FALSE(n.attributes.Flag("grad_w"));
    }
  }
  // With adapters everywhere, A's gradients need every product's input; with one on
  // q_proj, only the norm's output. The difference is the inputs of down_proj (T x
  // 2048 in each of 12 blocks) and of o_proj (kept: attention's backward reads it).
  Graph forward = model->Forward({.dtype = DType::kBF16, .tokens = 2048, .row = 512});
  const auto few = Must(ResolveLora(model->modules(), {.target_modules = std::vector<std::string>{"q_proj"}}));
  const auto all = Must(ResolveLora(model->modules(), {}));
  const auto alive = [&](const std::vector<LoraModule>& targets) {
    return MostAlive(UpdateInPlace(Differentiate(Fuse(AddLora(forward, targets, 0)), false)));
  };
  EXPECT_LE(alive(few), alive(all) - Bytes{11 * 2048 * 2048 * 2});
}

// Of a block's seven adapters those on q, k and v read one x, and those on gate and up another: x A^T of each is one
// product, and so are its two gradients. With dropout every adapter has an x of its own.
TEST(RealSteps, AdaptersThatShareTheirInputShareProducts) {
  const auto model = tiny::MakeModel(kBenchmark);
  for (const double dropout : {0.0, 0.05}) {
    for (const bool accumulate : {false, true}) {
      const Graph graph = StepGraph(*model, true, accumulate, Recompute::kNone, dropout);
      std::map<std::pair<Op, size_t>, int> count;  // by op and number of weights
      for (const Node& n : graph.nodes()) {
        if (n.op == Op::kLinears || n.op == Op::kLinearsDw) ++count[{n.op, n.outputs.size()}];
        if (n.op == Op::kLinearsDx) ++count[{n.op, n.inputs.size() / 2}];
        if (n.op != Op::kLinears) continue;
        for (size_t i = 0; i < n.outputs.size(); ++i) {
          const std::string weight = graph.value(n.inputs[1 + i]).name, y = graph.value(n.outputs[i]).name;
          EXPECT_NE(weight.find(y + ".weight"), std::string::npos) << y << " is made by " << weight;
        }
      }
      std::map<std::pair<Op, size_t>, int> want;
      for (const size_t weights : {2, 3}) {
        if (dropout > 0) continue;
        want[{Op::kLinears, weights}] = want[{Op::kLinearsDw, weights}] = 12;
        // What the first block reads needs no gradient, but what its MLP reads depends on adapters.
        want[{Op::kLinearsDx, weights}] = weights == 3 ? 11 : 12;
      }
      EXPECT_EQ(count, want) << "dropout " << dropout;
    }
  }
}

TEST(RealSteps, EveryResidualIsFoldedIntoAProduct) {
  for (const char* config : {kBenchmark, kOpt350}) {
    for (const bool lora : {false, true}) {
      const auto model = tiny::MakeModel(config);
      const Graph graph = StepGraph(*model, lora, false, Recompute::kNone);
      int adds = 0;
      for (const Node& n : graph.nodes()) {
        if (n.op == Op::kAdd && n.phase == Phase::kForward && n.block >= 0) ++adds;
      }
      EXPECT_EQ(adds, 0) << config << " lora " << lora;
    }
  }
}

TEST(RealSteps, ProgramsReadBackToThemselves) {
  for (const char* config : {kBenchmark, kOpt350}) {
    for (const bool lora : {false, true}) {
      const auto model = tiny::MakeModel(config);
      const Graph first = StepGraph(*model, lora, false, Recompute::kBlock),
                  rest = StepGraph(*model, lora, true, Recompute::kBlock);
      const auto programs =
          Must(AssignAddresses(std::vector<ProgramPlan>{{"step", {{&first, 0, 1}, {&rest, 1, 8}}}}, 2));
      const std::string text = PrintProgram(programs[0]);
      const auto back = ReadProgram(text);
      ASSERT_TRUE(back.ok()) << back.status().message();
      EXPECT_EQ(PrintProgram(*back), text);
      // Blocks share their segments: with depth, only the Program's bindings grow.
      EXPECT_LE(programs[0].segments.size(), 16u);
    }
  }
}

// Damage to a real Program's text never causes a crash, and an accepted text verifies. Changes one byte in each line,
// which is few enough to try often.
TEST(RealSteps, ADamagedProgramIsRefusedOrVerifies) {
  const auto model = tiny::MakeModel(tiny::LlamaConfigText(true));
  Graph forward = model->Forward({.dtype = DType::kBF16, .tokens = 64, .row = 32});
  TrainAllWeights(&forward);
  const auto programs = Must(CompileGraphs(TrainAndEval(forward, forward), {.micro_batches = 2})).programs.all();
  const std::string good = PrintProgram(programs[0]);
  Must(ReadProgram(good));
  uint64_t state = 11;
  const auto next = [&] { return state = state * 6364136223846793005u + 1442695040888963407u, state >> 33; };
  const std::string_view kAlphabet = "0123456789%-, ()[]{}\"=.\naelnrst";
  for (int i = 0; i < 400; ++i) {
    std::string text = good;
    const size_t at = next() % text.size();
    if (next() % 2) {
      text[at] = kAlphabet[next() % kAlphabet.size()];
    } else {
      text.erase(at, 1 + next() % 40);
    }
    const auto read = ReadProgram(text);
    if (read.ok()) {
      EXPECT_TRUE(Verify(*read).ok());
    }
  }
}

}  // namespace
}  // namespace temper::real_steps_test
