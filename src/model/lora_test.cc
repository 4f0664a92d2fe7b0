#include "model/lora.h"
#include "graph/named_ops.h"
#include "model/lora_rewrite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "model/families.h"
#include "model/lora_names.h"
#include "model/model.h"

namespace temper::lora_test {
namespace {

template <class T>
T Must(Result<T> result) {
  TEMPER_CHECK(result.ok()) << result.status().message();
  return std::move(*result);
}
std::unique_ptr<Model> Make(const char* text) {
  return std::move(*ModelFromConfig(Json::parse(text), "f"));
}
std::unique_ptr<Model> Llama(bool tied = true) {
  return Make(tied ? R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 50, "hidden_size": 32,
      "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48, "tie_word_embeddings": true})"
                   : R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 50, "hidden_size": 32,
      "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48})");
}
std::unique_ptr<Model> Opt350() {
  return Make(R"({"architectures": ["OPTForCausalLM"], "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2,
      "num_attention_heads": 2, "ffn_dim": 48, "word_embed_proj_dim": 16, "do_layer_norm_before": false})");
}

std::vector<std::string> Selected(const Model& model, const LoraConfig& spec) {
  const auto targets = ResolveLora(model.modules(), spec);
  EXPECT_TRUE(targets.ok()) << targets.status().message();
  std::vector<std::string> modules;
  if (targets.ok()) {
    for (const LoraModule& t : *targets) modules.push_back(t.path);
  }
  return modules;
}
void ExpectRefused(const Model& model, const LoraConfig& spec, const std::string& why) {
  const auto targets = ResolveLora(model.modules(), spec);
  ASSERT_FALSE(targets.ok()) << why;
  EXPECT_EQ(targets.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(targets.status().message().find(why), std::string::npos) << targets.status().message();
}

using Names = std::vector<std::string>;

const std::string L0 = "model.layers.0.", L1 = "model.layers.1.";

// PEFT: a list selects by a suffix of the path that starts after a dot, a string is a regex that must match the whole
// path, "all-linear" is every linear module but the output embedding. Exclusions work the same two ways.
TEST(LoraTargets, AListSelectsByTheEndOfThePath) {
  const auto model = Llama();
  EXPECT_EQ(Selected(*model, {.target_modules = Names{"q_proj"}}),
            (std::vector<std::string>{L0 + "self_attn.q_proj", L1 + "self_attn.q_proj"}));
  EXPECT_EQ(Selected(*model, {.target_modules = Names{"layers.1.self_attn.q_proj"}}),
            (std::vector<std::string>{L1 + "self_attn.q_proj"}));
  EXPECT_EQ(Selected(*model, {.target_modules = Names{L0 + "mlp.up_proj", "v_proj"}}),
            (std::vector<std::string>{L0 + "self_attn.v_proj", L0 + "mlp.up_proj", L1 + "self_attn.v_proj"}));
  ExpectRefused(*model, {.target_modules = Names{"proj"}}, "no linear module is called 'proj'");
  ExpectRefused(*model, {.target_modules = Names{"_proj"}}, "'_proj'");
  ExpectRefused(*model, {.target_modules = Names{"q_proj", "query"}}, "'query'; this model has");
  ExpectRefused(*model, {.target_modules = Names{"q_proj", "query"}}, "q_proj");
}

// PEFT would take "0" for the block transformer.h.0, too.
TEST(LoraTargets, AModuleInAListIsCalledByTheListAndItsPlace) {
  EXPECT_EQ(ShortName("transformer.h.1.ffn.0"), "ffn.0");
  EXPECT_EQ(ShortName("transformer.h.1.multi_head_attention.Wq"), "Wq");
  EXPECT_EQ(ShortName("model.layers.0.mlp.gate.weight"), "gate.weight");
  EXPECT_EQ(ShortName("lm_head"), "lm_head");
}

TEST(LoraTargets, ARegexMustMatchTheWholePath) {
  const auto model = Llama();
  ExpectRefused(*model, {.target_modules = "q_proj"}, "selects no linear module");
  EXPECT_EQ(Selected(*model, {.target_modules = ".*q_proj"}).size(), 2u);
  EXPECT_EQ(Selected(*model, {.target_modules = R"(.*\.1\..*\.(q|v)_proj)"}),
            (std::vector<std::string>{L1 + "self_attn.q_proj", L1 + "self_attn.v_proj"}));
  // Syntax of Python's re that ECMAScript lacks.
  EXPECT_EQ(Selected(*model, {.target_modules = R"((?i).*\.0\..*Q_PROJ)"}).size(), 1u);
  EXPECT_EQ(Selected(*model, {.target_modules = R"(.*(?<=\.k)_proj\Z)"}).size(), 2u);
  EXPECT_EQ(Selected(*model, {.target_modules = R"((?!.*\.0\.).*q_proj)"}).size(), 1u);
  EXPECT_EQ(Selected(*model, {.target_modules = R"(.*(?P<which>q|k)_proj)"}).size(), 4u);
  EXPECT_EQ(Selected(*model, {.target_modules = "model|.*q_proj"}).size(), 2u)
      << "each alternative must match the whole path";
}

TEST(LoraTargets, AllLinearLeavesTheHeadOut) {
  for (const bool tied : {false, true}) {
    const auto modules = Selected(*Llama(tied), {});
    EXPECT_EQ(modules.size(), 2u * 7u);
    for (const std::string& m : modules) EXPECT_NE(m, "lm_head");
  }
  const auto opt = Selected(*Opt350(), {});
  EXPECT_EQ(opt.size(), 2u * 6u + 2u) << "the 2 are the projections of the embedding";
  EXPECT_EQ(opt.front(), "model.decoder.project_in");
  EXPECT_EQ(opt.back(), "model.decoder.project_out");
}

TEST(LoraTargets, TheHeadCanBeNamedTiedOrNot) {
  for (const bool tied : {false, true}) {
    const auto targets = ResolveLora(Llama(tied)->modules(), {.target_modules = Names{"lm_head"}});
    ASSERT_TRUE(targets.ok()) << targets.status().message();
    ASSERT_EQ(targets->size(), 1u);
    EXPECT_EQ((*targets)[0].path, "lm_head");
    EXPECT_EQ((*targets)[0].in, 32);
    EXPECT_EQ((*targets)[0].out, 50);
  }
}

TEST(LoraTargets, ExcludedModulesGetNoAdapter) {
  const auto model = Llama();
  EXPECT_EQ(
      Selected(*model, {.target_modules = Names{"q_proj"}, .exclude_modules = Names{"layers.0.self_attn.q_proj"}}),
      (std::vector<std::string>{L1 + "self_attn.q_proj"}));
  EXPECT_EQ(Selected(*model, {.exclude_modules = Names{"q_proj", "down_proj"}}).size(), 2u * 5u);
  EXPECT_EQ(Selected(*model, {.exclude_modules = R"(.*\.0\..*)"}).size(), 7u);
  EXPECT_EQ(Selected(*model, {.target_modules = ".*q_proj", .exclude_modules = R"(.*\.1\..*)"}),
            (std::vector<std::string>{L0 + "self_attn.q_proj"}));
  EXPECT_EQ(Selected(*model, {.exclude_modules = "q_proj"}).size(), 2u * 7u) << "a regex excludes whole paths only";
  ExpectRefused(*model, {.target_modules = Names{"q_proj"}, .exclude_modules = Names{"q_proj"}},
                "selects no linear module");
}

std::unique_ptr<Model> GptNeoX() {
  return Make(R"({"architectures": ["GPTNeoXForCausalLM"], "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2,
      "num_attention_heads": 2, "intermediate_size": 48})");
}
std::unique_ptr<Model> Multimodal() {
  return Make(R"({"architectures": ["Gemma3ForConditionalGeneration"], "text_config": {"vocab_size": 50,
      "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
      "intermediate_size": 48}})");
}

// Adapters were made with many versions of transformers, in which a class had other names for some modules: the head of
// GPT-NeoX (4), the text model inside a multimodal one (before 4.52).
TEST(LoraTargets, AModuleAnswersToItsNamesOfEarlierVersions) {
  const auto neox = GptNeoX(), gemma = Multimodal();
  const Names head = {"lm_head"};
  EXPECT_EQ(Selected(*neox, {.target_modules = Names{"embed_out"}}), head);
  EXPECT_EQ(Selected(*neox, {.target_modules = Names{"lm_head"}}), head);
  EXPECT_EQ(Selected(*neox, {.target_modules = "embed_(out|in)"}), head);
  EXPECT_EQ(Selected(*neox, {.target_modules = Names{"dense", "embed_out"}, .exclude_modules = Names{"embed_out"}}),
            (Names{"gpt_neox.layers.0.attention.dense", "gpt_neox.layers.1.attention.dense"}));
  EXPECT_EQ(
      Must(ResolveLora(neox->modules(), {.target_modules = Names{"lm_head"}, .rank_pattern = {{"embed_out", 3}}}))[0].r,
      3);
  ExpectRefused(*Llama(), {.target_modules = Names{"embed_out"}}, "no linear module is called 'embed_out'");
  const std::string today = "model.language_model.layers.1.mlp.up_proj";
  EXPECT_EQ(Selected(*gemma, {.target_modules = Names{"language_model.model.layers.1.mlp.up_proj"}}), Names{today});
  EXPECT_EQ(Selected(*gemma, {.target_modules = R"(language_model\.model\.layers\.1\.mlp\.up_proj)"}), Names{today});
  EXPECT_EQ(Selected(*gemma, {.target_modules = Names{"language_model.lm_head"}}), head);
}

// What is written names modules as today's transformers does, so that PEFT finds them.
TEST(LoraTargets, SelectedByOlderNamesAreWrittenByPathsOfToday) {
  const auto neox = GptNeoX();
  const LoraConfig plain = {.r = 4, .target_modules = Names{"dense"}, .layers_to_transform = {1}};
  EXPECT_EQ(Must(NamedByPaths(neox->modules(), plain)), plain) << "as the user wrote it";
  const LoraConfig older = {.r = 4,
                            .target_modules = Names{"dense", "embed_out"},
                            .layers_to_transform = {1},
                            .rank_pattern = {{"embed_out", 3}, {"layers.1.attention.dense", 5}},
                            .alpha_pattern = {{"embed_out|dense", 7}}};
  const std::string dense = "gpt_neox.layers.1.attention.dense";
  EXPECT_EQ(Must(NamedByPaths(neox->modules(), older)), (LoraConfig{.r = 4,
                                                                    .target_modules = Names{dense, "lm_head"},
                                                                    .rank_pattern = {{dense, 5}, {"lm_head", 3}},
                                                                    .alpha_pattern = {{dense, 7}, {"lm_head", 7}}}));
}

TEST(LoraTargets, OfChosenLayersAlone) {
  const auto model = Llama();
  const auto of_second = Selected(*model, {.layers_to_transform = {1, 9}});
  EXPECT_EQ(of_second.size(), 7u);
  for (const std::string& m : of_second) EXPECT_TRUE(m.starts_with(L1)) << m;
  const auto idle = IdleLoraSettings(model->modules(), {.layers_to_transform = {1, 9}});
  ASSERT_TRUE(idle.ok() && idle->size() == 1u);
  EXPECT_NE(idle->front().find("lora.layers_to_transform: 9 has no effect"), std::string::npos) << idle->front();
  const auto many = IdleLoraSettings(model->modules(), {.layers_to_transform = {1, 9, 10, 11}});
  ASSERT_TRUE(many.ok() && many->size() == 1u) << "one line, however many there are";
  EXPECT_NE(many->front().find(": 9 and 2 more have no effect"), std::string::npos) << many->front();
}

TEST(LoraTargets, PatternsOverrideRankAndAlphaPerModule) {
  const LoraConfig spec{.r = 4,
                        .alpha = 8,
                        .target_modules = Names{"q_proj", "k_proj", "v_proj"},
                        .rank_pattern = {{"q_proj", 2}, {".*q_proj", 99}, {R"(layers\.1\..*k_proj)", 6}, {"_proj", 77}},
                        .alpha_pattern = {{"k_proj", 3}}};
  const auto targets = ResolveLora(Llama()->modules(), spec);
  ASSERT_TRUE(targets.ok()) << targets.status().message();
  std::map<std::string, std::pair<int64_t, double>> got;
  for (const LoraModule& t : *targets) got[t.path] = {t.r, t.scale};
  EXPECT_EQ(got[L0 + "self_attn.q_proj"], std::pair(int64_t{2}, 4.0)) << "the first that matches";
  EXPECT_EQ(got[L0 + "self_attn.k_proj"], std::pair(int64_t{4}, 0.75));
  EXPECT_EQ(got[L1 + "self_attn.k_proj"], std::pair(int64_t{6}, 0.5));
  EXPECT_EQ(got[L0 + "self_attn.v_proj"], std::pair(int64_t{4}, 2.0))
      << "a key matches a suffix that starts after a dot";
}

TEST(LoraTargets, SettingsWithoutEffectAreReported) {
  const auto model = Llama();
  const auto idle = [&](const LoraConfig& spec) {
    const auto lines = IdleLoraSettings(model->modules(), spec);
    EXPECT_TRUE(lines.ok()) << lines.status().message();
    return lines.ok() ? *lines : std::vector<std::string>();
  };
  EXPECT_TRUE(idle({}).empty());
  EXPECT_TRUE(idle({.exclude_modules = Names{"q_proj"}, .rank_pattern = {{"k_proj", 2}}}).empty());
  EXPECT_TRUE(idle({.exclude_modules = R"(.*\.0\..*)"}).empty());
  const auto typing_errors = idle({.target_modules = Names{"q_proj", "k_proj"},
                                   .exclude_modules = Names{"v_proj"},
                                   .rank_pattern = {{"q_proj", 2}, {"qproj", 3}, {".*q_proj", 4}},
                                   .alpha_pattern = {{"down_proj", 3}}});
  ASSERT_EQ(typing_errors.size(), 4u);
  EXPECT_EQ(
      typing_errors[0],
      "lora.rank_pattern: 'qproj' has no effect: it is the first match of no module with an adapter; these have one: "
      "k_proj, q_proj");
  EXPECT_EQ(typing_errors[1].find("lora.rank_pattern: '.*q_proj' has no effect"), 0u)
      << "an earlier pattern matches the same modules";
  EXPECT_EQ(typing_errors[2].find("lora.alpha_pattern: 'down_proj' has no effect"), 0u);
  EXPECT_EQ(typing_errors[3].find("lora.exclude_modules: 'v_proj' excludes nothing"), 0u);
  EXPECT_EQ(idle({.exclude_modules = "q_proj"}).size(), 1u) << "a regex excludes whole paths only";
}

TEST(LoraTargets, RankStabilisedScalesByTheRoot) {
  const auto targets =
      ResolveLora(Llama()->modules(), {.r = 9, .alpha = 6, .target_modules = Names{"q_proj"}, .use_rslora = true});
  ASSERT_TRUE(targets.ok());
  EXPECT_EQ((*targets)[0].scale, 2.0);
}

// Of an adapter's file no option can be changed: PEFT's adapters on embeddings, for example.
TEST(LoraTargets, ErrorsOfAnAdapterNameItsFileAndWhatIsLeftToDo) {
  const auto model = Llama();
  const std::string file = "there/adapter_config.json";
  const auto error = [&](const LoraConfig& config) { return ResolveLora(model->modules(), config, file).status(); };
  for (const LoraConfig& config :
       {LoraConfig{.target_modules = Names{"wte", "embed_tokens"}}, LoraConfig{.target_modules = ".*embed_tokens"}}) {
    const std::string message = error(config).message();
    EXPECT_EQ(error(config).code(), StatusCode::kUnsupported);
    EXPECT_EQ(message.find(file + ": target_modules"), 0u) << message;
    EXPECT_NE(message.find("merge_and_unload"), std::string::npos) << message;
  }
  const auto some = ResolveLora(model->modules(), {.target_modules = Names{"q_proj", "embed_tokens"}}, file);
  ASSERT_TRUE(some.ok()) << "PEFT wants one name to match; a tensor of another module is refused with the weights";
  EXPECT_EQ(some->size(), 2u);
  for (const LoraConfig& config : {LoraConfig{.target_modules = "(q_proj"}, LoraConfig{.exclude_modules = "[z-a]"},
                                   LoraConfig{.rank_pattern = {{"*", 3}}}, LoraConfig{.r = 0}}) {
    const std::string message = error(config).message();
    EXPECT_EQ(message.find(file + ": "), 0u) << message;
    EXPECT_EQ(message.find("lora."), std::string::npos) << message;
  }
}

TEST(LoraTargets, BadPatternsAndRanksAreRefused) {
  const auto model = Llama();
  ExpectRefused(*model, {.target_modules = "(q_proj"}, "lora.target_modules: '(q_proj' is not a regular expression");
  ExpectRefused(*model, {.exclude_modules = "[z-a]"}, "lora.exclude_modules: '[z-a]' is not a regular expression");
  ExpectRefused(*model, {.rank_pattern = {{"*", 3}}}, "lora.rank_pattern: '");
  ExpectRefused(*model, {.r = 0}, "must be from 1");
  ExpectRefused(*model, {.r = -4}, "must be from 1");
  ExpectRefused(*model, {.r = INT64_MAX}, "must be from 1");
  ExpectRefused(*model, {.rank_pattern = {{"q_proj", 0}}}, "must be from 1");
  ExpectRefused(*model, {.target_modules = R"(((\w|\.|_)+)+[89])"}, "cannot be matched");
  ExpectRefused(*model, {.target_modules = std::string(100000, '(')}, "characters");
  ExpectRefused(*model, {.target_modules = std::string(20000, '(') + std::string(20000, ')')},
                "not a regular expression");
}

TEST(AddLora, AddsABranchToEachTargetAndFreezesTheRest) {
  const auto model = Llama();
  const Graph forward = model->Forward({.tokens = 4});
  const auto targets =
      *ResolveLora(model->modules(), {.r = 4, .alpha = 2, .target_modules = Names{"q_proj", "lm_head"}});
  const Graph graph = AddLora(forward, targets, 0.25);
  ASSERT_TRUE(Verify(graph).ok()) << Verify(graph).message();
  std::set<std::string> trainable;
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    if (graph.value(id).trainable) trainable.insert(graph.value(id).name);
  }
  std::set<std::string> expected;
  for (const LoraModule& t : targets) expected.insert({LoraAName(t.path), LoraBName(t.path)});
  EXPECT_EQ(trainable, expected);
  EXPECT_TRUE(expected.contains("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight")) << "PEFT's name";

  int dropouts = 0;
  for (const Node& n : graph.nodes()) {
    if (n.op == Op::kDropout) {
      ++dropouts;
      EXPECT_TRUE(n.rng_name.ends_with(".lora_dropout")) << n.rng_name;
      EXPECT_EQ(n.attributes.Double("p"), 0.25);
    }
    if (n.op == Op::kLinear && graph.value(n.inputs[1]).name == LoraBName(L0 + "self_attn.q_proj")) {
      EXPECT_EQ(n.attributes.Double("scale"), 0.5);
      EXPECT_TRUE(n.attributes.Flag("acc"));
      EXPECT_EQ(graph.value(n.outputs[0]).name, L0 + "q") << "readers see the sum under the old name";
    }
    if (n.op == Op::kLinearCrossEntropy) {
      EXPECT_TRUE(n.attributes.Flag("pair2"));
      EXPECT_EQ(graph.value(n.inputs[4]).name, LoraBName("lm_head"));
    }
  }
  EXPECT_EQ(dropouts, 3);
  std::set<std::string> rng_names;
  for (const Node& n : graph.nodes()) {
    if (n.op == Op::kDropout) {
      EXPECT_TRUE(rng_names.insert(n.rng_name).second) << "two modules draw the same numbers";
    }
  }

  const Graph plain = AddLora(forward, targets, 0);
  EXPECT_EQ(plain.FindSource(kRngInput), kNoValue) << "nothing draws";
}

TEST(AddLora, ScalesColumnsByMagnitudesOverNormsBeforeTheBias) {
  const auto model = Make(R"({"architectures": ["Qwen2ForCausalLM"], "vocab_size": 50, "hidden_size": 32,
      "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 48})");
  const auto targets =
      *ResolveLora(model->modules(), {.r = 4, .alpha = 2, .target_modules = Names{"q_proj"}, .use_dora = true});
  const std::string magnitude = "base_model.model." + L0 + "self_attn.q_proj.lora_magnitude_vector";
  const auto ops = [&](double dropout, RowNorms norms) {
    const Graph graph = AddLora(model->Forward({.dtype = DType::kBF16, .tokens = 4}), targets, dropout, norms);
    EXPECT_TRUE(Verify(graph).ok()) << Verify(graph).message();
    const Value& m = graph.value(graph.FindSource(magnitude));
    EXPECT_TRUE(m.trainable);
    EXPECT_EQ(m.type, (TensorType{DType::kF32, {32}})) << "bf16 would change the model before it learns";
    EXPECT_FALSE(graph.value(graph.FindSource(targets[0].parts[0].squares)).trainable);
    std::vector<Op> of_q;
    const auto input = [&](const Node& n, size_t i) {
      return i < n.inputs.size() ? graph.value(n.inputs[i]).name : "";
    };
    for (const Node& n : graph.nodes()) {
      const bool reads = input(n, 1) == L0 + "self_attn.q_proj.weight" || input(n, 1) == magnitude ||
                         graph.value(n.outputs[0]).name == L0 + "q";
      if (reads) of_q.push_back(n.op);
    }
    return of_q;
  };
  using Ops = std::vector<Op>;
  EXPECT_EQ(ops(0, RowNorms::kComputed), (Ops{Op::kLinear, Op::kRowSquares, Op::kScaleColumns, Op::kAdd}));
  EXPECT_EQ(ops(0, RowNorms::kLoaded), (Ops{Op::kLinear, Op::kScaleColumns, Op::kAdd}));
  EXPECT_EQ(ops(0.1, RowNorms::kComputed),
            (Ops{Op::kLinear, Op::kLinear, Op::kRowSquares, Op::kScaleColumns, Op::kScaleColumns, Op::kAdd}));
}

TEST(LoraTargets, MagnitudesOfTheHeadAndOfExpertsAreRefusedByName) {
  ExpectRefused(*Llama(), {.target_modules = Names{"q_proj", "lm_head"}, .use_dora = true},
                "lora.use_dora: DoRA of lm_head is not supported, which is the output head");
  const auto mixture = Make(R"({"architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 50, "hidden_size": 32,
      "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
      "moe_intermediate_size": 48, "num_experts": 4, "num_experts_per_tok": 2})");
  ExpectRefused(*mixture, {.use_dora = true}, "PEFT refuses it, too");
}

TEST(AddLora, WorksInDecodingGraphsToo) {
  for (const auto& model : {Llama(), Opt350()}) {
    const auto targets = *ResolveLora(model->modules(), {.target_modules = ".*"});
    const Graph graph = AddLora(model->Forward({.tokens = 4, .cache = 16}), targets, 0);
    ASSERT_TRUE(Verify(graph).ok()) << Verify(graph).message();
    const Value& logits = graph.value(graph.nodes().back().outputs[0]);
    EXPECT_EQ(logits.name, kLogitsOutput);
    EXPECT_EQ(logits.role, Role::kOutput);
  }
}

TEST(GraphText, ModelGraphsSurviveARoundTripThroughText) {
  for (const auto& model : {Llama(true), Llama(false), Opt350()}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const Graph forward = model->Forward({.dtype = dtype, .tokens = 8, .row = 4});
      const auto targets = *ResolveLora(model->modules(), {.target_modules = ".*"});
      for (const Graph& graph : {forward, AddLora(forward, targets, 0.1), model->Forward({.tokens = 2, .cache = 9})}) {
        const std::string text = PrintGraph(graph);
        const auto back = ReadGraph(text);
        ASSERT_TRUE(back.ok()) << back.status().message();
        EXPECT_EQ(PrintGraph(*back), text);
      }
    }
  }
}

}  // namespace
}  // namespace temper::lora_test
