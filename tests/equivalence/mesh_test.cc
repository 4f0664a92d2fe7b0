// A mesh may only change the order of sums: five steps on every mesh have the losses and gradient norms of one rank,
// within the rounding of that order in f32.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <thread>

#include "../tiny_run.h"
#include "comm/local/local_communicator.h"
#include "comm/mpi/mpi_communicator.h"
#include "graph/named_ops.h"
#include "mpi_rank.h"
#include "thread_ranks.h"

namespace temper::tiny::mesh_test {
namespace {

// The first shows the gradients, the second the weights that they made, the third AdamW's states.
constexpr int kSteps = 5;

struct Curve {
  std::vector<double> loss, norm;
  std::vector<double> aux, loads;  // of experts, where they are balanced
};

// A rate at which, with AdamW, rounding errors stay small over some steps: at 1e-2 these adapters diverge.
constexpr double kLearningRate = 1e-3;

Curve CurveOf(const RunSpec& spec, double learning_rate = kLearningRate, int steps = kSteps) {
  TinyRun run(spec);
  Curve curve;
  for (int step = 0; step < steps; ++step) {
    Batch batch = run.MakeBatch(static_cast<uint64_t>(step));
    run.Step(batch, learning_rate);
    curve.loss.push_back(run.loss_sum() / (spec.weighted ? batch.weight_sum : static_cast<double>(batch.supervised)));
    curve.norm.push_back(run.grad_norm());
    curve.aux.push_back(run.aux_loss());
    curve.loads.push_back(run.squares_of_loads());
  }
  return curve;
}

Curve TrainOnMesh(const RunSpec& spec, double learning_rate = kLearningRate, int steps = kSteps) {
  const auto curves =
      OnThreadRanks<Curve>(spec, [&](const RunSpec& own) { return CurveOf(own, learning_rate, steps); });
  for (const Curve& c : curves) {
    EXPECT_EQ(c.loss, curves[0].loss) << "ranks disagree about the loss";
    EXPECT_EQ(c.norm, curves[0].norm) << "ranks disagree about the gradient norm";
    EXPECT_EQ(c.aux, curves[0].aux) << "ranks disagree about the loss that balances experts";
  }
  return curves[0];
}

MeshSpec MeshOf(std::initializer_list<std::pair<Axis, int>> sizes, ResidualSplit residual = ResidualSplit::kTokens) {
  MeshSpec spec{.residual = residual};
  for (const auto& [axis, size] : sizes) spec.mesh.set_size(axis, size);
  return spec;
}

MeshSpec WithRules(MeshSpec spec, std::vector<ShardingRule> rules) {
  spec.rules = std::move(rules);
  return spec;
}

MeshSpec Deciding(MeshSpec spec, GradSync grad_sync, EmbeddingMove embedding) {
  spec.decisions = {.grad_sync = grad_sync, .embedding = embedding};
  return spec;
}
MeshSpec KeepingBlocks(MeshSpec spec, int gathered) {
  spec.gathered_blocks = gathered;
  return spec;
}
MeshSpec NotResharded(MeshSpec spec) {
  return KeepingBlocks(std::move(spec), kAllBlocks);
}

MeshSpec GatheringMlp(MeshSpec spec) {
  spec.decisions.mlp = MlpMove::kWeights;
  return spec;
}

struct Case {
  const char* name;
  MeshSpec mesh;
  bool grouped_heads_only = false;  // copies of KV heads: not for models with as many KV heads as heads
  bool few = false;                 // some variants of those that are `of_few`, instead of every one
  int micro_batches = 2;
  Recompute recompute = Recompute::kNone;
};

// `layers`: of three blocks.
Case Pipeline(const char* name, std::initializer_list<std::pair<Axis, int>> sizes, PipelineKind kind,
              std::vector<int> layers = {}, Recompute recompute = Recompute::kNone) {
  MeshSpec mesh = MeshOf(sizes);
  const bool interleaved = kind == PipelineKind::kInterleaved;
  mesh.pipeline = {.kind = kind, .chunks_per_stage = interleaved ? 2 : 1, .layers = std::move(layers)};
  return {name, mesh, /*grouped_heads_only=*/false, /*few=*/true, /*micro_batches=*/4, recompute};
}

Case KeepingGathered(Case c) {
  c.mesh = NotResharded(GatheringMlp(c.mesh));
  return c;
}

Case In2d(Case c) {
  c.mesh.residual = ResidualSplit::kHidden;
  return c;
}

Case ReducingOnce(Case c) {
  c.mesh = Deciding(c.mesh, GradSync::kStep, EmbeddingMove::kAuto);
  return c;
}

const std::vector<Case>& Cases() {
  constexpr auto k1f1b = PipelineKind::kOneForwardOneBackward, kZeroBubble = PipelineKind::kZeroBubble;
  constexpr auto kInterleaved = PipelineKind::kInterleaved, kGpipe = PipelineKind::kGpipe;
  constexpr auto kAgain = Recompute::kBlock;
  static const std::vector<Case> cases = {
      {"fsdp2", MeshOf({{Axis::kFsdp, 2}})},
      {"fsdp3", MeshOf({{Axis::kFsdp, 3}})},
      {"dp2", MeshOf({{Axis::kDp, 2}}), false, true},
      {"dp2_fsdp2", MeshOf({{Axis::kDp, 2}, {Axis::kFsdp, 2}})},
      {"tp2", MeshOf({{Axis::kTp, 2}})},
      {"tp2_whole_residual", MeshOf({{Axis::kTp, 2}}, ResidualSplit::kWhole)},
      {"tp4_two_kv_heads", MeshOf({{Axis::kTp, 2}, {Axis::kCopy, 2}}), true},
      {"tp4_two_kv_heads_whole_residual", MeshOf({{Axis::kTp, 2}, {Axis::kCopy, 2}}, ResidualSplit::kWhole), true,
       true},
      {"2d", MeshOf({{Axis::kRow, 2}, {Axis::kTp, 2}}, ResidualSplit::kHidden)},
      {"2.5d", MeshOf({{Axis::kDepth, 2}, {Axis::kRow, 2}, {Axis::kTp, 2}}, ResidualSplit::kHidden)},
      {"fsdp2_tp2", MeshOf({{Axis::kFsdp, 2}, {Axis::kTp, 2}})},
      {"dp2_tp2", MeshOf({{Axis::kDp, 2}, {Axis::kTp, 2}}), false, true},
      {"fsdp2_2d", MeshOf({{Axis::kFsdp, 2}, {Axis::kRow, 2}, {Axis::kTp, 2}}, ResidualSplit::kHidden), false, true},
      {"cp2_2d", MeshOf({{Axis::kCp, 2}, {Axis::kRow, 2}, {Axis::kTp, 2}}, ResidualSplit::kHidden), false, true},
      // Documents of the batch cross the borders of chunks, which have 8 or 4 tokens.
      {"cp2", MeshOf({{Axis::kCp, 2}})},
      {"cp4", MeshOf({{Axis::kCp, 4}}), false, true},
      {"fsdp2_cp2", MeshOf({{Axis::kFsdp, 2}, {Axis::kCp, 2}}), false, true},
      {"cp2_tp2", MeshOf({{Axis::kCp, 2}, {Axis::kTp, 2}}), false, true},
      // Gradients and states are shared, weights stay gathered from a block's forward to its backward.
      {"fsdp2_two_blocks_gathered", KeepingBlocks(MeshOf({{Axis::kFsdp, 2}}), 2), false, true},
      {"dp2_fsdp2_not_resharded", NotResharded(MeshOf({{Axis::kDp, 2}, {Axis::kFsdp, 2}})), false, true},
      // Decisions that cost would make, both ways.
      {"fsdp3_grad_sync_per_step", Deciding(MeshOf({{Axis::kFsdp, 3}}), GradSync::kStep, EmbeddingMove::kTable), false,
       true},
      {"dp2_fsdp2_rows_looked_up",
       Deciding(MeshOf({{Axis::kDp, 2}, {Axis::kFsdp, 2}}), GradSync::kMicroBatch, EmbeddingMove::kRows), false, true},
      {"fsdp2_tp2_both", Deciding(MeshOf({{Axis::kFsdp, 2}, {Axis::kTp, 2}}), GradSync::kStep, EmbeddingMove::kRows),
       false, true},
      {"fsdp2_tp2_neither",
       Deciding(MeshOf({{Axis::kFsdp, 2}, {Axis::kTp, 2}}), GradSync::kMicroBatch, EmbeddingMove::kTable), false, true},
      {"2d_grad_sync_per_step",
       Deciding(MeshOf({{Axis::kRow, 2}, {Axis::kTp, 2}}, ResidualSplit::kHidden), GradSync::kStep,
                EmbeddingMove::kAuto),
       false, true},
      // The feed-forward part's weights gathered instead of its activations, also along two axes one after the other.
      {"tp2_mlp_weights", GatheringMlp(MeshOf({{Axis::kTp, 2}}))},
      {"tp4_two_kv_heads_mlp_weights", GatheringMlp(MeshOf({{Axis::kTp, 2}, {Axis::kCopy, 2}})), true, true},
      {"fsdp2_tp2_mlp_weights", GatheringMlp(MeshOf({{Axis::kFsdp, 2}, {Axis::kTp, 2}})), false, true},
      {"fsdp2_tp2_mlp_weights_recompute", GatheringMlp(MeshOf({{Axis::kFsdp, 2}, {Axis::kTp, 2}})), false, true, 2,
       kAgain},
      {"fsdp2_tp2_mlp_weights_not_resharded", NotResharded(GatheringMlp(MeshOf({{Axis::kFsdp, 2}, {Axis::kTp, 2}}))),
       false, true},
      {"fsdp2_tp2_mlp_weights_grad_sync_per_step",
       GatheringMlp(Deciding(MeshOf({{Axis::kFsdp, 2}, {Axis::kTp, 2}}), GradSync::kStep, EmbeddingMove::kRows)), false,
       true},
      // A table over both axes that split rows, including the outer one.
      {"rules_on_both_data_axes",
       WithRules(Deciding(MeshOf({{Axis::kDp, 2}, {Axis::kFsdp, 2}}), GradSync::kStep, EmbeddingMove::kRows),
                 {{"embed_tokens", "dp+fsdp,-"}}),
       false, true},
      // Columns instead of rows, weights of one kind whole, a weight over the axis of plain data parallelism.
      {"rules_on_fsdp2_dp2",
       WithRules(MeshOf({{Axis::kDp, 2}, {Axis::kFsdp, 2}}), {{R"(mlp\.|fc\d\.weight)", "replicate"},
                                                              {R"((q|k|v)_proj\.(weight|lora_A))", "-,fsdp"},
                                                              {R"(o_proj\.weight)", "dp,fsdp"}}),
       false, true},
      // The ffn whole on tensor ranks, the head's input dim over fsdp.
      {"rules_on_fsdp2_tp2",
       WithRules(MeshOf({{Axis::kFsdp, 2}, {Axis::kTp, 2}}),
                 {{R"((gate|up|down)_proj\.(weight|lora_[AB])|fc\d\.(weight|lora_[AB]))", "-,fsdp"},
                  {R"(fc\d\.bias)", "replicate"},
                  {"lm_head", "tp,fsdp"}})},
      {"pp2", MeshOf({{Axis::kPp, 2}}), false, false, 4},
      Pipeline("pp2_recompute", {{Axis::kPp, 2}}, k1f1b, {2, 1}, kAgain),
      Pipeline("pp2_gpipe", {{Axis::kPp, 2}}, kGpipe),
      Pipeline("pp2_interleaved", {{Axis::kPp, 2}}, kInterleaved, {0, 1, 1, 1}),
      Pipeline("pp2_zero_bubble", {{Axis::kPp, 2}}, kZeroBubble),
      Pipeline("pp4", {{Axis::kPp, 4}}, k1f1b, {1, 1, 1, 0}),
      Pipeline("pp3_zero_bubble_recompute", {{Axis::kPp, 3}}, kZeroBubble, {}, kAgain),
      Pipeline("pp2_dp2", {{Axis::kPp, 2}, {Axis::kDp, 2}}, k1f1b),
      Pipeline("pp2_fsdp2_zero_bubble", {{Axis::kPp, 2}, {Axis::kFsdp, 2}}, kZeroBubble),
      Pipeline("pp2_cp2", {{Axis::kPp, 2}, {Axis::kCp, 2}}, k1f1b, {}, kAgain),
      Pipeline("pp2_cp2_zero_bubble", {{Axis::kPp, 2}, {Axis::kCp, 2}}, kZeroBubble),
      Pipeline("pp2_fsdp2_tp2", {{Axis::kPp, 2}, {Axis::kFsdp, 2}, {Axis::kTp, 2}}, k1f1b),
      In2d(Pipeline("pp2_2d", {{Axis::kPp, 2}, {Axis::kRow, 2}, {Axis::kTp, 2}}, k1f1b)),
      ReducingOnce(Pipeline("pp2_fsdp2_grad_sync_per_step", {{Axis::kPp, 2}, {Axis::kFsdp, 2}}, k1f1b)),
      ReducingOnce(Pipeline("pp2_fsdp2_interleaved_grad_sync_per_step", {{Axis::kPp, 2}, {Axis::kFsdp, 2}},
                            kInterleaved, {0, 1, 1, 1}, kAgain)),
      ReducingOnce(KeepingGathered(Pipeline("pp2_fsdp2_zero_bubble_not_resharded_grad_sync_per_step",
                                            {{Axis::kPp, 2}, {Axis::kFsdp, 2}}, kZeroBubble))),
      KeepingGathered(Pipeline("pp2_fsdp2_not_resharded", {{Axis::kPp, 2}, {Axis::kFsdp, 2}}, k1f1b)),
      KeepingGathered(Pipeline("pp2_fsdp2_interleaved_not_resharded_recompute", {{Axis::kPp, 2}, {Axis::kFsdp, 2}},
                               kInterleaved, {0, 1, 1, 1}, kAgain)),
      KeepingGathered(Pipeline("pp2_fsdp2_tp2_zero_bubble_not_resharded",
                               {{Axis::kPp, 2}, {Axis::kFsdp, 2}, {Axis::kTp, 2}}, kZeroBubble)),
  };
  return cases;
}

struct Variant {
  const char* name;
  std::string config;
  Method method;
  double dropout;
  bool on_large_meshes = false, of_few = false;
  bool weighted = false;
  double noise = 0, smoothing = 0;
  bool always = false;  // of every case; all that MPI needs
  std::vector<std::string> saved = {};
  size_t steps = kSteps;  // that are compared
  double balance = 0;     // router_aux_loss_coef
};

// With gelu instead of relu: a relu unit may be so near its kink that the order of a sum decides whether it has a
// gradient; curves then differ by 1e-3.
std::string Smooth(const std::string& opt) {
  return R"({"activation_function": "gelu", )" + opt.substr(opt.find('"'));
}

std::vector<Variant> Variants() {
  return {
      {"full tied Llama", LlamaConfigText(true), Method::kFull, 0, true, true, false, 0, 0, true},
      {"full untied Llama", LlamaConfigText(false), Method::kFull, 0, true, true},
      {"LoRA with dropout", LlamaConfigText(true), Method::kLora, 0.1, true, true, false, 0, 0, true},
      {"LoRA on the head", LlamaConfigText(false), Method::kLoraWithHead, 0.1},
      {"DoRA Qwen3", Qwen3ConfigText(), Method::kDora, 0, true, true},
      {"DoRA Phi-3 with dropout", Phi3ConfigText(), Method::kDora, 0.1},
      {"full Phi-3", Phi3ConfigText(), Method::kFull, 0, true},
      {"LoRA Phi-3", Phi3ConfigText(), Method::kLora, 0.1},
      {"full Qwen3", Qwen3ConfigText(), Method::kFull, 0, true, true},
      {"LoRA Qwen3", Qwen3ConfigText(), Method::kLora, 0.1},
      {"full Gemma 2", Gemma2ConfigText(), Method::kFull, 0, false, true},
      {"LoRA on the head of Gemma 2", Gemma2ConfigText(), Method::kLoraWithHead, 0},
      {"full Granite", GraniteConfigText(), Method::kFull, 0},
      {"full OPT", Smooth(OptConfigText(true)), Method::kFull, 0, true, true, false, 0, 0, true},
      {"full post-norm OPT", Smooth(OptConfigText(false)), Method::kFull, 0},
      {"full Llama with weights", LlamaConfigText(false), Method::kFull, 0, true, true, true, 0, 0, true},
      {"LoRA on the head with weights", LlamaConfigText(true), Method::kLoraWithHead, 0.1, false, false, true},
      {"full Cohere 2", Cohere2ConfigText(), Method::kFull, 0, false, true},
      {"LoRA Cohere 2", Cohere2ConfigText(), Method::kLora, 0.1},
      {"full GPT-NeoX", GptNeoXConfigText(), Method::kFull, 0, true, true},
      {"LoRA GPT-NeoX", GptNeoXConfigText(), Method::kLora, 0.1},
      {"LoRA OPT", Smooth(OptConfigText(true)), Method::kLora, 0.1, false, true},
      {"full Llama with noise and smooth labels", LlamaConfigText(true), Method::kFull, 0, true, true, true, 5, 0.2},
      {"LoRA Gemma 2 with noise and smooth labels", Gemma2ConfigText(), Method::kLoraWithHead, 0.1, false, false, false,
       5, 0.1},
      {"LoRA beside modules in full",
       LlamaConfigText(false),
       Method::kLora,
       0.1,
       true,
       true,
       false,
       0,
       0,
       false,
       {"embed_tokens", "lm_head", "norm", "v_proj"}},
      {"LoRA beside a copy of a tied table",
       LlamaConfigText(true),
       Method::kLora,
       0.1,
       false,
       true,
       false,
       0,
       0,
       false,
       {"embed_tokens"}}};
}

// The curve of one rank that trains the same as the mesh of `c`.
RunSpec SpecOf(const Variant& v, const Case& c) {
  return {.config = v.config,
          .method = v.method,
          .saved = v.saved,
          .dropout = v.dropout,
          .rows_per_micro_batch = c.mesh.mesh.size(DataAxes(c.mesh.mesh)),
          .micro_batches = c.micro_batches,
          // AdamW divides by the gradient's size: if a weight's gradient is rounding noise (OPT's k_proj.bias in
          // theory, units at relu's kink) it takes steps of full length in a direction that depends on the order of
          // sums. 1e-5 is far below all other gradients here.
          .settings = UpdateSettings(Op::kAdamw, {{"eps", 1e-5}}),
          .weighted = v.weighted,
          .noise = v.noise,
          .smoothing = v.smoothing,
          .balance = v.balance};
}

// Curves of one rank, computed once for each batch: no mesh and no recomputation changes them.
const Curve& OneRank(const RunSpec& spec) {
  static std::map<std::string, Curve> known;
  const auto [it, fresh] = known.try_emplace(
      fmt::format("{} {} {} {} {} {} {} {} {} {} {}", spec.config, static_cast<int>(spec.method), spec.dropout,
                  spec.rows_per_micro_batch, spec.micro_batches, spec.weighted, spec.noise, spec.smoothing,
                  spec.balance, spec.saved.size(), spec.settings.ToString()));
  if (!fresh) return it->second;
  RunSpec alone = spec;
  alone.threads = 1;
  it->second = CurveOf(alone);
  return it->second;
}

void ExpectLossesOfOneRank(const Variant& v, const Case& c) {
  SCOPED_TRACE(fmt::format("{} on {}", v.name, c.name));
  const RunSpec spec = SpecOf(v, c);
  const Curve& one = OneRank(spec);
  RunSpec sharded = spec;
  sharded.recompute = c.recompute;
  sharded.mesh = c.mesh;
  const Curve mesh = TrainOnMesh(sharded);
  for (size_t s = 0; s < v.steps; ++s) {
    EXPECT_NEAR(mesh.loss[s], one.loss[s], 1e-5 * one.loss[s]) << "step " << s + 1;
    EXPECT_NEAR(mesh.norm[s], one.norm[s], 1e-4 * one.norm[s]) << "step " << s + 1;
    EXPECT_NEAR(mesh.aux[s], one.aux[s], 1e-5 * one.aux[s]) << "step " << s + 1;
    EXPECT_EQ(mesh.loads[s], one.loads[s]) << "step " << s + 1;
  }
}

class MeshEquivalence : public testing::TestWithParam<int> {};

// The plainest mesh of each kind has all variants: every one is cut in every way. On the others those that are not for
// `always` take turns from case to case: of two, or, for those `few`, of four.
bool IsTurnOf(const Variant& v, size_t place, const Case& c, int number) {
  for (const std::string_view plainest : {"fsdp2", "tp2", "2d", "cp2", "pp2"}) {
    if (c.name == plainest) return true;
  }
  const auto turn = place + static_cast<size_t>(number);
  if (c.few) return v.of_few && (v.always || turn % 4 == 0);
  return v.always || turn % 2 == 0;
}

TEST_P(MeshEquivalence, FiveStepsHaveTheLossesOfOneRank) {
  const Case& c = Cases()[static_cast<size_t>(GetParam())];
  size_t place = 0;
  for (const Variant& v : Variants()) {
    if (!IsTurnOf(v, place++, c, GetParam())) continue;
    // With more ranks than cores, collectives take long.
    if (c.mesh.mesh.ranks() > 4 && !v.on_large_meshes) continue;
    if (c.grouped_heads_only && v.config.find("num_key_value_heads") == std::string::npos) continue;
    // Norms on the outputs of attention and MLP make whole rows, which 2-D modes would have to cut.
    if (c.mesh.residual == ResidualSplit::kHidden && v.config.find("Gemma2") != std::string::npos) continue;
    ExpectLossesOfOneRank(v, c);
  }
}

std::string TinyOf(const std::string& architecture, const std::string& more) {
  return R"({"architectures": [")" + architecture + R"("], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 3,
      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "max_position_embeddings": 256)" +
         more + "}";
}

// Families whose shapes the variants above do not have, each on two meshes that use all kinds of axes between them.
TEST(Mesh, FurtherFamiliesHaveTheLossesOfOneRank) {
  const Case meshes[] = {{"fsdp2_tp2", MeshOf({{Axis::kFsdp, 2}, {Axis::kTp, 2}})},
                         Pipeline("pp2_cp2", {{Axis::kPp, 2}, {Axis::kCp, 2}}, PipelineKind::kOneForwardOneBackward)};
  const Variant variants[] = {{"full Gemma 3", Gemma3ConfigText(), Method::kFull, 0},
                              {"LoRA Gemma 3", Gemma3ConfigText(), Method::kLora, 0.1},
                              {"full Phi-3 with longrope", LongropeConfigText(), Method::kFull, 0},
                              {"full GPT-2", Gpt2ConfigText(), Method::kFull, 0},
                              {"LoRA GPT-2 with the model's dropout", Gpt2ConfigText(), Method::kLora, 0.1},
                              {"full StarCoder 2", Starcoder2ConfigText(), Method::kFull, 0},
                              {"LoRA StarCoder 2", Starcoder2ConfigText(), Method::kLora, 0.1},
                              {"full Falcon", FalconConfigText(), Method::kFull, 0},
                              {"LoRA Falcon", FalconConfigText(), Method::kLora, 0.1},
                              {"full nanochat", NanoChatConfigText(), Method::kFull, 0},
                              {"full Phi", PhiConfigText(), Method::kFull, 0},
                              {"LoRA Phi", PhiConfigText(), Method::kLoraWithHead, 0.1},
                              {"full StableLM", StableLmConfigText(), Method::kFull, 0}};
  for (const Case& c : meshes) {
    for (const Variant& v : variants) ExpectLossesOfOneRank(v, c);
  }
  // A bias of the head and norms of heads where columns of blocks are cut, too.
  const Case columns = {"row2_tp2", MeshOf({{Axis::kRow, 2}, {Axis::kTp, 2}}, ResidualSplit::kHidden)};
  ExpectLossesOfOneRank({"full Phi", PhiConfigText(), Method::kFull, 0}, columns);
  ExpectLossesOfOneRank({"full StableLM", StableLmConfigText(), Method::kFull, 0}, columns);
  // Convolutions and states run along whole rows, which cp would cut; it has no steps of ALiBi and sinks.
  const std::string lfm3 = TinyOf("Lfm3ForCausalLM", R"(, "head_dim": 16, "conv_L_cache": 5, "sliding_window": 6,
      "layer_types": ["conv", "sliding_attention", "full_attention"])");
  // So tiny a delta net, with keys divided by norms near 0, has gradients of a norm of 18 to 45: every step multiplies
  // what rounding has changed. The first step compares gradients, the second what they did to weights.
  const auto of_three_steps = [](const char* name, const std::string& config) {
    return Variant{.name = name, .config = config, .method = Method::kFull, .dropout = 0, .steps = 3};
  };
  const Variant hybrids[] = {
      {"full LFM3", lfm3, Method::kFull, 0},
      {"LoRA LFM3", lfm3, Method::kLora, 0.1},
      of_three_steps("full BLOOM", TinyOf("BloomForCausalLM", "")),
      of_three_steps("full Apertus", TinyOf("ApertusForCausalLM", "")),
      of_three_steps("full Granite SWA",
                     TinyOf("GraniteSWAForCausalLM", R"(, "sliding_window": 6, "layer_rope_theta": [0, 500, 500])")),
      {.name = "full Qwen 3.5", .config = Qwen35ConfigText(), .method = Method::kFull, .dropout = 0, .steps = 2},
      {.name = "LoRA Qwen 3.5", .config = Qwen35ConfigText(), .method = Method::kLora, .dropout = 0.1, .steps = 2},
      {"full Nemotron-H", NemotronHConfigText(), Method::kFull, 0},
      {"LoRA Nemotron-H", NemotronHConfigText(), Method::kLora, 0.1}};
  for (const Variant& v : hybrids) {
    ExpectLossesOfOneRank(v, meshes[0]);
    ExpectLossesOfOneRank(
        v, Pipeline("pp2_fsdp2", {{Axis::kPp, 2}, {Axis::kFsdp, 2}}, PipelineKind::kOneForwardOneBackward));
  }
  // Two stages are neighbours, so that blocks of one may take what those of the other publish.
  for (const Method method : {Method::kFull, Method::kLora}) {
    const Variant gemma = {"Gemma 4", Gemma4ConfigText(), method, method == Method::kLora ? 0.1 : 0};
    for (const Case& c : meshes) ExpectLossesOfOneRank(gemma, c);
    ExpectLossesOfOneRank(gemma, {"dp2_tp2", MeshOf({{Axis::kDp, 2}, {Axis::kTp, 2}})});
  }
  // A router's choice jumps, so a token that is near to two experts may go elsewhere where rounding differs: so few
  // steps that none does. Dropout is not for adapters of experts.
  const Variant mixtures[] = {
      {.name = "full Qwen 3 MoE", .config = Qwen3MoeConfigText(), .method = Method::kFull, .dropout = 0, .steps = 4},
      {.name = "LoRA Qwen 3 MoE", .config = Qwen3MoeConfigText(), .method = Method::kLora, .dropout = 0, .steps = 4}};
  for (const Variant& v : mixtures) {
    for (const Case& c : meshes) ExpectLossesOfOneRank(v, c);
    ExpectLossesOfOneRank(v, {"dp2_tp2", MeshOf({{Axis::kDp, 2}, {Axis::kTp, 2}})});
  }
  // Stacks in one tensor; biases that the experts of rows choose, of terms of a sum on ranks of tp. Sinks are not in
  // cp.
  const Variant gpt_oss[] = {
      {.name = "full gpt-oss", .config = GptOssConfigText(), .method = Method::kFull, .dropout = 0, .steps = 3},
      {.name = "LoRA gpt-oss", .config = GptOssConfigText(), .method = Method::kLora, .dropout = 0, .steps = 3}};
  for (const Variant& v : gpt_oss) {
    ExpectLossesOfOneRank(v, {"dp2_tp2", MeshOf({{Axis::kDp, 2}, {Axis::kTp, 2}})});
    ExpectLossesOfOneRank(
        v, Pipeline("pp2_fsdp2", {{Axis::kPp, 2}, {Axis::kFsdp, 2}}, PipelineKind::kOneForwardOneBackward));
  }
  // Segments of stacks in one tensor, which ranks of tp cut in each matrix; an MLP of all tokens beside the experts,
  // with a gate; modules fused by key head. The gradients of three such blocks grow by so much that the order of sums
  // shows after a step of adapters.
  const Variant stacked[] = {
      {.name = "full Qwen 3.5 MoE", .config = Qwen35MoeConfigText(), .method = Method::kFull, .dropout = 0, .steps = 2},
      {.name = "LoRA Qwen 3.5 MoE", .config = Qwen35MoeConfigText(), .method = Method::kLora, .dropout = 0, .steps = 1},
      {.name = "LoRA Qwen3-Next", .config = Qwen3NextConfigText(), .method = Method::kLora, .dropout = 0, .steps = 3},
      {.name = "full Granite MoE",
       .config = GraniteMoeSharedConfigText(),
       .method = Method::kFull,
       .dropout = 0,
       .steps = 3},
      {.name = "full GLM-4.5", .config = Glm4MoeConfigText(), .method = Method::kFull, .dropout = 0, .steps = 3}};
  for (const Variant& v : stacked) {
    ExpectLossesOfOneRank(v, {"fsdp2_tp2", MeshOf({{Axis::kFsdp, 2}, {Axis::kTp, 2}})});
  }
  // Latents are of tokens, so ranks of tp have those of their rows; heads, and what they add to the gradient of the
  // part of keys that they share, are dealt to them.
  const Variant latent[] = {
      {.name = "full DeepSeek-V3", .config = DeepseekV3ConfigText(), .method = Method::kFull, .dropout = 0, .steps = 3},
      {.name = "LoRA DeepSeek-V3", .config = DeepseekV3ConfigText(), .method = Method::kLora, .dropout = 0, .steps = 3},
      {.name = "full Youtu", .config = YoutuConfigText(), .method = Method::kFull, .dropout = 0},
      {.name = "LoRA Youtu", .config = YoutuConfigText(), .method = Method::kLora, .dropout = 0.1}};
  for (const Variant& v : latent) {
    ExpectLossesOfOneRank(v, {"dp2_tp2", MeshOf({{Axis::kDp, 2}, {Axis::kTp, 2}})});
    ExpectLossesOfOneRank(v, {"tp2_whole_residual", MeshOf({{Axis::kTp, 2}}, ResidualSplit::kWhole)});
    ExpectLossesOfOneRank(
        v, Pipeline("pp2_fsdp2", {{Axis::kPp, 2}, {Axis::kFsdp, 2}}, PipelineKind::kOneForwardOneBackward));
  }
  // The loss that balances experts is of all tokens of a micro-batch, whoever has them. It counts enough to be seen in
  // the norm: the gradients of routers without it are a hundredth of all.
  const Variant balanced[] = {
      {.name = "full, balanced", .config = Qwen3MoeConfigText(), .method = Method::kFull, .steps = 3, .balance = 3},
      {.name = "LoRA, balanced", .config = Qwen3MoeConfigText(), .method = Method::kLora, .steps = 3, .balance = 3}};
  for (const Variant& v : balanced) {
    for (const Case& c : meshes) ExpectLossesOfOneRank(v, c);
    ExpectLossesOfOneRank(v, {"dp2_tp2", MeshOf({{Axis::kDp, 2}, {Axis::kTp, 2}})});
    ExpectLossesOfOneRank(v, {"tp2_whole_residual", MeshOf({{Axis::kTp, 2}}, ResidualSplit::kWhole)});
    ExpectLossesOfOneRank(v, {"tp4", MeshOf({{Axis::kTp, 2}, {Axis::kCopy, 2}})});
    ExpectLossesOfOneRank(v, Pipeline("pp2_fsdp2_zero_bubble", {{Axis::kPp, 2}, {Axis::kFsdp, 2}},
                                      PipelineKind::kZeroBubble, {}, Recompute::kBlock));
  }
  // Granite 4 has one group of heads, which ranks of tp would cut (norm_over_heads_test.cc).
  for (const Method method : {Method::kFull, Method::kLora}) {
    const Variant granite = {"Granite 4", GraniteHybridConfigText(), method, method == Method::kLora ? 0.1 : 0};
    ExpectLossesOfOneRank(granite, {"dp2_fsdp2", MeshOf({{Axis::kDp, 2}, {Axis::kFsdp, 2}})});
    ExpectLossesOfOneRank(
        granite, Pipeline("pp2_fsdp2", {{Axis::kPp, 2}, {Axis::kFsdp, 2}}, PipelineKind::kOneForwardOneBackward));
  }
  // Attention beside Mamba-2: ranks of tp have a group of its heads each.
  const Variant falcon = {"LoRA Falcon-H1", FalconH1ConfigText(), Method::kLora, 0.1};
  ExpectLossesOfOneRank(falcon, {"dp2_tp2", MeshOf({{Axis::kDp, 2}, {Axis::kTp, 2}})});
  ExpectLossesOfOneRank(
      falcon, Pipeline("pp2_fsdp2", {{Axis::kPp, 2}, {Axis::kFsdp, 2}}, PipelineKind::kOneForwardOneBackward));
  // ALiBi: ranks of tp have the slopes of their own heads. xIELU: its two scalars are summed up over ranks.
  const Variant scalars[] = {
      {.name = "LoRA BLOOM",
       .config =
           R"({"architectures": ["BloomForCausalLM"], "vocab_size": 160, "hidden_size": 64, "n_layer": 2, "n_head": 4})",
       .method = Method::kLora,
       .dropout = 0.1},
      {.name = "full Apertus",
       .config = R"({"architectures": ["ApertusForCausalLM"], "vocab_size": 160, "hidden_size": 64,
           "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
           "max_position_embeddings": 256})",
       .method = Method::kFull,
       .dropout = 0}};
  for (const Variant& v : scalars) {
    ExpectLossesOfOneRank(v, {"fsdp2_tp2", MeshOf({{Axis::kFsdp, 2}, {Axis::kTp, 2}})});
  }
  // One KV head: tensor-parallel ranks hold copies of it.
  const Variant star_coder = {"full StarCoder", GptBigCodeConfigText(), Method::kFull, 0};
  ExpectLossesOfOneRank(star_coder, {"fsdp2_copy2", MeshOf({{Axis::kFsdp, 2}, {Axis::kCopy, 2}})});
  ExpectLossesOfOneRank(star_coder, meshes[1]);
}

// SGD and Lion have one state or none to shard. After ten steps the optimizers differ.
TEST(Mesh, OtherOptimizersHaveTheLossesOfOneRank) {
  constexpr int kLong = 10;
  struct Optimizer {
    Op op;
    Attributes settings;
    double learning_rate = 2e-2;
  };
  const Optimizer optimizers[] = {{Op::kSgd, UpdateSettings(Op::kSgd)},
                                  {Op::kSgd, UpdateSettings(Op::kSgd, {{"nesterov", 1}})},
                                  {Op::kSgd, UpdateSettings(Op::kSgd, {{"momentum", 0}})},
                                  {Op::kLion, UpdateSettings(Op::kLion), 3e-4}};
  const MeshSpec meshes[] = {MeshOf({{Axis::kFsdp, 2}}), MeshOf({{Axis::kTp, 2}}), MeshOf({{Axis::kPp, 2}}),
                             MeshOf({{Axis::kDp, 2}, {Axis::kFsdp, 2}})};
  for (const Method method : {Method::kFull, Method::kLora}) {
    for (const MeshSpec& mesh : meshes) {
      std::vector<double> last;  // loss by optimizer
      for (const auto& [op, settings, learning_rate] : optimizers) {
        SCOPED_TRACE(fmt::format("{} {}, {}, {}", ToString(op), settings.ToString(), static_cast<int>(method),
                                 mesh.mesh.ToString()));
        RunSpec spec{.method = method,
                     .rows_per_micro_batch = mesh.mesh.size(DataAxes(mesh.mesh)),
                     .micro_batches = 2,
                     .threads = 1,
                     .optimizer = UpdateRuleOf(op),
                     .settings = settings};
        const Curve one = CurveOf(spec, learning_rate, kLong);
        spec.mesh = mesh;
        const Curve sharded = TrainOnMesh(spec, learning_rate, kLong);
        for (size_t s = 0; s < kLong; ++s) {
          EXPECT_NEAR(sharded.loss[s], one.loss[s], 1e-5 * one.loss[s]) << "step " << s + 1;
          EXPECT_NEAR(sharded.norm[s], one.norm[s], 1e-4 * one.norm[s]) << "step " << s + 1;
        }
        for (const double other : last)
          EXPECT_GT(std::abs(one.loss.back() - other), 3e-5 * other) << "too small a step";
        last.push_back(one.loss.back());
      }
    }
  }
}

// States in blocks are cut between them, so that the blocks are those of one rank; with columns of 512 also over tp.
// Muon's matrices and all values of Adafactor stay whole. The first two leave values to AdamW.
TEST(Mesh, OptimizersThatWorkOnBlocksOrMatricesHaveTheLossesOfOneRank) {
  const Attributes of_adam = UpdateSettings(Op::kAdamw8bit, {{"eps", 1e-5}});
  struct {
    Op op;
    Attributes settings;
    MeshSpec mesh;
    int64_t hidden = 64, blocks = 3;
  } const cases[] = {{Op::kAdamw8bit, of_adam, MeshOf({{Axis::kDp, 2}})},
                     {Op::kAdamw8bit, of_adam, MeshOf({{Axis::kFsdp, 2}})},
                     {Op::kAdamw8bit, of_adam, MeshOf({{Axis::kPp, 2}})},
                     {Op::kAdamw8bit, of_adam, MeshOf({{Axis::kDp, 2}, {Axis::kFsdp, 2}})},
                     {Op::kAdamw8bit, of_adam, MeshOf({{Axis::kTp, 2}}), 512, 1},
                     {Op::kMuon, UpdateSettings(Op::kMuon), MeshOf({{Axis::kDp, 2}})},
                     {Op::kMuon, UpdateSettings(Op::kMuon), MeshOf({{Axis::kPp, 2}})},
                     {Op::kAdafactor, UpdateSettings(Op::kAdafactor), MeshOf({{Axis::kDp, 2}})},
                     {Op::kAdafactor, UpdateSettings(Op::kAdafactor), MeshOf({{Axis::kPp, 2}})}};
  for (const auto& [op, settings, mesh, hidden, blocks] : cases) {
    SCOPED_TRACE(fmt::format("{}, {}", ToString(op), mesh.mesh.ToString()));
    RunSpec spec{.config = LlamaConfigText(true, hidden, blocks),
                 .rows_per_micro_batch = mesh.mesh.size(DataAxes(mesh.mesh)),
                 .micro_batches = 2,
                 .threads = 1,
                 .optimizer = UpdateRuleOf(op),
                 .settings = settings};
    constexpr int kLong = 8;
    const Curve one = CurveOf(spec, 1e-3, kLong);
    spec.mesh = mesh;
    const Curve sharded = TrainOnMesh(spec, 1e-3, kLong);
    for (size_t s = 0; s < kLong; ++s) {
      EXPECT_NEAR(sharded.loss[s], one.loss[s], 1e-5 * one.loss[s]) << "step " << s + 1;
      EXPECT_NEAR(sharded.norm[s], one.norm[s], 1e-4 * one.norm[s]) << "step " << s + 1;
    }
  }
}

// Slots of memory are reused while their values may still be in transit, on all stages at once.
TEST(Mesh, StagesWithManyChunksAndMicroBatchesFinish) {
  RunSpec spec{.config = LlamaConfigText(true, /*hidden=*/64, /*blocks=*/8),
               .micro_batches = 8,
               .threads = 1,
               .settings = UpdateSettings(Op::kAdamw, {{"eps", 1e-5}})};
  const Curve one = CurveOf(spec);
  spec.mesh = MeshOf({{Axis::kPp, 4}});
  spec.mesh.pipeline = {.kind = PipelineKind::kInterleaved, .chunks_per_stage = 2, .layers = {1, 1, 1, 1, 1, 1, 1, 1}};
  const Curve mesh = TrainOnMesh(spec);
  for (size_t s = 0; s < kSteps; ++s) EXPECT_NEAR(mesh.loss[s], one.loss[s], 1e-5 * one.loss[s]) << "step " << s + 1;
}

// If an option places gradients, the update runs after the backward.
TEST(Mesh, TheUpdateDuringTheBackwardGivesTheBitsOfOneAfterIt) {
  constexpr auto kStep = GradSync::kStep;
  constexpr auto kRows = EmbeddingMove::kRows, kTable = EmbeddingMove::kTable;
  const MeshSpec meshes[] = {
      MeshOf({{Axis::kCp, 2}}),
      NotResharded(MeshOf({{Axis::kFsdp, 2}})),
      Deciding(MeshOf({{Axis::kDp, 2}, {Axis::kFsdp, 2}}), kStep, kTable),
      Deciding(MeshOf({{Axis::kFsdp, 2}, {Axis::kTp, 2}}), kStep, kRows),
      GatheringMlp(MeshOf({{Axis::kDp, 2}, {Axis::kTp, 2}})),
      MeshOf({{Axis::kRow, 2}, {Axis::kTp, 2}}, ResidualSplit::kHidden),
  };
  for (const MeshSpec& mesh : meshes) {
    for (const Method method : {Method::kFull, Method::kLoraWithHead}) {
      for (const int micro_batches : {1, 3}) {
        SCOPED_TRACE(fmt::format("{} {} {}", mesh.mesh.ToString(), static_cast<int>(method), micro_batches));
        RunSpec spec{.config = LlamaConfigText(/*tied=*/method == Method::kFull),
                     .method = method,
                     .dtype = DType::kBF16,
                     .dropout = method == Method::kFull ? 0 : 0.1,
                     .rows_per_micro_batch = 2 * mesh.mesh.size(DataAxes(mesh.mesh)),
                     .micro_batches = micro_batches,
                     .recompute = micro_batches == 1 ? Recompute::kNone : Recompute::kBlock,
                     .max_norm = 0,
                     .mesh = mesh};
        const Curve beside = TrainOnMesh(spec);
        spec.memory.gradients = Tier::kDevice;
        const Curve after = TrainOnMesh(spec);
        EXPECT_EQ(beside.loss, after.loss);
        EXPECT_EQ(beside.norm, after.norm);
        EXPECT_NE(beside.loss[0], beside.loss[kSteps - 1]) << "the loss did not change";
      }
    }
  }
}

// Overlap and recomputation change no bit of a ring.
TEST(Mesh, OverlapAndRecomputationOfARingChangeNoBit) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    RunSpec spec{.config = LlamaConfigText(true),
                 .method = Method::kLora,
                 .dtype = dtype,
                 .dropout = 0.1,
                 .micro_batches = 2,
                 .mesh = MeshOf({{Axis::kCp, 2}})};
    const Curve curve = TrainOnMesh(spec);
    EXPECT_NE(curve.loss[0], curve.loss[kSteps - 1]) << "the loss did not change";
    spec.mesh.overlap = false;
    EXPECT_EQ(TrainOnMesh(spec).loss, curve.loss) << "without overlap";
    spec.recompute = Recompute::kBlock;
    EXPECT_EQ(TrainOnMesh(spec).loss, curve.loss) << "recomputed";
    spec.mesh.overlap = spec.through_text = true;
    EXPECT_EQ(TrainOnMesh(spec).loss, curve.loss) << "recomputed, with overlap, read back from its text";
  }
}

// Products for gradients of weights are delayed to hide a collective, in a model that is wide enough.
TEST(Mesh, OverlapOfTensorRanksChangesNoBit) {
  const std::string wide = LlamaConfigText(/*tied=*/false, /*hidden=*/256, /*blocks=*/2);
  for (const auto& mesh : {MeshOf({{Axis::kTp, 2}}), MeshOf({{Axis::kFsdp, 2}, {Axis::kTp, 2}})}) {
    for (const ResidualSplit residual : {ResidualSplit::kTokens, ResidualSplit::kWhole}) {
      RunSpec spec{.config = wide,
                   .method = Method::kFull,
                   .dtype = DType::kBF16,
                   .rows_per_micro_batch = 2,
                   .micro_batches = 2,
                   .mesh = mesh};
      spec.mesh.residual = residual;
      const Curve curve = TrainOnMesh(spec);
      EXPECT_NE(curve.loss[0], curve.loss[kSteps - 1]) << "the loss did not change";
      spec.mesh.overlap = false;
      EXPECT_EQ(TrainOnMesh(spec).loss, curve.loss) << "without overlap";
      spec.recompute = Recompute::kBlock;
      spec.mesh.overlap = spec.through_text = true;
      EXPECT_EQ(TrainOnMesh(spec).loss, curve.loss) << "recomputed, with overlap, read back from its text";
    }
  }
}

// For a whole step: the bytes that the rules predict for the Program are those that the communicator counts.
TEST(Mesh, ARingSendsTheBytesOfItsProgram) {
  ThreadWorld world(4);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      const auto communicator = world.Join(rank);
      RunSpec spec{.rows_per_micro_batch = 2, .threads = 1, .mesh = MeshOf({{Axis::kFsdp, 2}, {Axis::kCp, 2}})};
      spec.mesh.rank = rank;
      spec.communicator = communicator.get();
      TinyRun run(spec);
      const Bytes before = communicator->bytes_sent();
      Batch batch = run.MakeBatch(0);
      run.Step(batch);
      const Bytes sent = communicator->bytes_sent() - before;
      EXPECT_EQ(sent, CostOfStep(run.train()).sent) << "rank " << rank;
      // The ring: 4 micro-batches of 3 blocks on 2 ranks in f32: keys and values twice, their gradients' sums twice.
      const int64_t shift = 2 * (32 / 2) * (2 * 16) * 4;  // a row's half, two KV heads of 16
      EXPECT_GT(sent.v, 4 * 3 * (2 + 2) * shift);
    });
  }
  for (std::thread& t : threads) t.join();
}

// As above with ranks that are processes on two real or simulated hosts, for the variants that every mesh has.
class MpiEquivalence : public testing::TestWithParam<int> {};

TEST_P(MpiEquivalence, FiveStepsHaveTheLossesOfOneRank) {
  if (!HasMpi()) GTEST_SKIP() << "this build has no MPI";
  if (std::system("command -v mpirun >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no mpirun";
  const int ranks = Cases()[static_cast<size_t>(GetParam())].mesh.mesh.ranks();
  const std::string command = fmt::format(
      "ASAN_OPTIONS=detect_leaks=0 timeout -k 5 300 mpirun -n {} --oversubscribe "
      "--allow-run-as-root --bind-to none /proc/{}/exe --mpi {} {} 2>&1 </dev/null",
      ranks, getpid(), (ranks + 1) / 2, GetParam());
  std::FILE* const pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  for (char line[512]; std::fgets(line, sizeof line, pipe) != nullptr;) output += line;
  EXPECT_EQ(pclose(pipe), 0) << output;
  EXPECT_NE(output.find(" curves are those of one rank"), std::string::npos) << output;
}

std::string NameOf(const testing::TestParamInfo<int>& info) {
  std::string name = Cases()[static_cast<size_t>(info.param)].name;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Meshes, MeshEquivalence, testing::Range(0, static_cast<int>(Cases().size())), NameOf);
// Every axis, kind of pipeline and lane. The other cases differ in what the compiler does: MeshEquivalence has them.
std::vector<int> CasesOverMpi() {
  const std::set<std::string> names = {"fsdp3",
                                       "dp2_fsdp2",
                                       "tp4_two_kv_heads",
                                       "2.5d",
                                       "cp4",
                                       "cp2_tp2",
                                       "fsdp2_tp2_both",
                                       "fsdp2_tp2_mlp_weights_not_resharded",
                                       "pp2_interleaved",
                                       "pp3_zero_bubble_recompute",
                                       "pp2_fsdp2_tp2",
                                       "pp2_cp2_zero_bubble",
                                       "pp2_fsdp2_interleaved_grad_sync_per_step"};
  std::vector<int> numbers;
  for (size_t i = 0; i < Cases().size(); ++i) {
    if (names.contains(Cases()[i].name)) numbers.push_back(static_cast<int>(i));
  }
  TEMPER_CHECK(numbers.size() == names.size());
  return numbers;
}
INSTANTIATE_TEST_SUITE_P(Meshes, MpiEquivalence, testing::ValuesIn(CasesOverMpi()), NameOf);

}  // namespace

// A rank of MpiEquivalence: the first one compares and reports.
int RunMpiRank(Communicator& communicator, int case_number) {
  const Case& c = Cases()[static_cast<size_t>(case_number)];
  int curves = 0, errors = 0;
  for (const Variant& v : Variants()) {
    if (!v.always) continue;
    if (c.grouped_heads_only && v.config.find("num_key_value_heads") == std::string::npos) continue;
    // Norms on the outputs of attention and MLP make whole rows, which 2-D modes would have to cut.
    if (c.mesh.residual == ResidualSplit::kHidden && v.config.find("Gemma2") != std::string::npos) continue;
    RunSpec spec = SpecOf(v, c);
    spec.threads = 1;
    const Curve one = communicator.rank() == 0 ? CurveOf(spec) : Curve();
    spec.recompute = c.recompute;
    spec.mesh = c.mesh;
    spec.mesh.rank = communicator.rank();
    spec.communicator = &communicator;
    const Curve mesh = CurveOf(spec);
    ++curves;
    for (size_t s = 0; s < one.loss.size(); ++s) {
      if (std::abs(mesh.loss[s] - one.loss[s]) <= 1e-5 * one.loss[s] &&
          std::abs(mesh.norm[s] - one.norm[s]) <= 1e-4 * one.norm[s]) {
        continue;
      }
      ++errors;
      fmt::print("{} on {}, step {}: loss {} and norm {}; of one rank {} and {}\n", v.name, c.name, s + 1, mesh.loss[s],
                 mesh.norm[s], one.loss[s], one.norm[s]);
    }
  }
  TEMPER_CHECK(curves > 1);
  if (communicator.rank() == 0 && errors == 0) fmt::print("{} curves are those of one rank\n", curves);
  return errors == 0 ? 0 : 1;
}

}  // namespace temper::tiny::mesh_test
