#include "model/trainable_set.h"
#include "graph/named_ops.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "model/adapted_model.h"
#include "model/families.h"

namespace temper::trainable_set_test {
namespace {

using Names = std::vector<std::string>;
using Readers = TrainedCopy::Readers;

std::unique_ptr<Model> Make(const std::string& text) {
  Result<std::unique_ptr<Model>> model = ModelFromConfig(Json::parse(text), "f");
  TEMPER_CHECK(model.ok()) << model.status().message();
  return std::move(*model);
}
std::unique_ptr<Model> Llama(bool tied) {
  return Make(std::string(R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 50, "hidden_size": 32,
      "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48, "tie_word_embeddings": )") +
              (tied ? "true}" : "false}"));
}
std::unique_ptr<Model> Phi3() {
  return Make(R"({"architectures": ["Phi3ForCausalLM"], "vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 1,
      "num_attention_heads": 2, "intermediate_size": 48, "max_position_embeddings": 64})");
}
std::unique_ptr<Model> Gpt2() {
  return Make(R"({"architectures": ["GPT2LMHeadModel"], "vocab_size": 50, "n_embd": 32, "n_layer": 1, "n_head": 2,
      "n_positions": 64})");
}

TrainableSet Resolved(const Model& model, const Names& saved, bool tie = false) {
  const auto set = ResolveTrainable(model, {.modules_to_save = saved, .ensure_weight_tying = tie});
  TEMPER_CHECK(set.ok()) << set.status().message();
  return *set;
}
// The tensors of an adapter's file that hold copies.
std::set<std::string> Tensors(const TrainableSet& set) {
  std::set<std::string> names;
  for (const TrainedCopy& copy : set.copies) {
    const FileTensor& tensor = copy.source.tensors().front();
    names.insert(tensor.name);
    names.insert(tensor.aliases.begin(), tensor.aliases.end());
  }
  return names;
}
std::set<std::string> InAdapter(const std::initializer_list<const char*>& names) {
  std::set<std::string> all;
  for (const char* name : names) all.insert("base_model.model." + std::string(name) + ".weight");
  return all;
}

// PEFT 0.21's names of what it saves, read off its files for the same settings.
TEST(TrainableSet, ModulesAreThoseWhoseNamesEndWithOneAsInPeft) {
  const auto untied = Llama(false), tied = Llama(true);
  EXPECT_EQ(Tensors(Resolved(*untied, {"embed_tokens", "lm_head"})), InAdapter({"model.embed_tokens", "lm_head"}));
  EXPECT_EQ(Tensors(Resolved(*untied, {"norm"})),
            InAdapter({"model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm",
                       "model.layers.1.input_layernorm", "model.layers.1.post_attention_layernorm"}));
  EXPECT_EQ(Tensors(Resolved(*untied, {"model.norm", "1.mlp.up_proj"})),
            InAdapter({"model.norm", "model.layers.1.mlp.up_proj"}));
  EXPECT_EQ(Tensors(Resolved(*tied, {"embed_tokens"})), InAdapter({"model.embed_tokens"}));
  EXPECT_EQ(Tensors(Resolved(*tied, {"lm_head"})), InAdapter({"lm_head"}));
  for (const char* name : {"embed_tokens", "lm_head"}) {
    EXPECT_EQ(Tensors(Resolved(*tied, {name}, /*tie=*/true)), InAdapter({"model.embed_tokens", "lm_head"}));
  }
  EXPECT_EQ(Tensors(Resolved(*untied, {"embed_tokens"}, /*tie=*/true)), InAdapter({"model.embed_tokens"}));
  EXPECT_EQ(Tensors(Resolved(*tied, {"norm"}, /*tie=*/true)), Tensors(Resolved(*tied, {"norm"})));
}

TEST(TrainableSet, BiasesAndSegmentsBelongToTheirModules) {
  const TrainableSet gpt2 = Resolved(*Gpt2(), {"c_proj", "ln_f"});
  EXPECT_TRUE(Tensors(gpt2).contains("base_model.model.transformer.h.0.mlp.c_proj.bias"));
  EXPECT_TRUE(Tensors(gpt2).contains("base_model.model.transformer.ln_f.bias"));
  for (const TrainedCopy& copy : gpt2.copies) {
    EXPECT_EQ(copy.source.transposed(), copy.name.ends_with("c_proj.weight")) << copy.name;
  }
  const TrainableSet phi3 = Resolved(*Phi3(), {"qkv_proj"});
  EXPECT_EQ(Tensors(phi3), InAdapter({"model.layers.0.self_attn.qkv_proj"}));
  ASSERT_EQ(phi3.copies.size(), 3u);
  EXPECT_EQ(phi3.copies[0].name, "base_model.model.model.layers.0.self_attn.qkv_proj.weight/q");
}

// As PEFT 0.21 saves them: the bias of a tied head is the head's, whose weight is a table of its own from then on. A
// head that stays tied keeps its bias.
TEST(TrainableSet, TheBiasOfAHeadIsTrainedWithIt) {
  for (const bool tied : {false, true}) {
    const auto phi = Make(std::string(R"({"architectures": ["PhiForCausalLM"], "vocab_size": 50, "hidden_size": 32,
        "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48, "tie_word_embeddings": )") +
                          (tied ? "true}" : "false}"));
    std::set<std::string> head = InAdapter({"lm_head"});
    head.insert("base_model.model.lm_head.bias");
    const TrainableSet set = Resolved(*phi, {"lm_head"});
    EXPECT_EQ(Tensors(set), head);
    for (const TrainedCopy& copy : set.copies) {
      const bool of_table = tied && copy.name.ends_with(".weight");
      EXPECT_EQ(copy.readers, of_table ? Readers::kHead : Readers::kAll) << copy.name;
    }
    EXPECT_EQ(Tensors(Resolved(*phi, {"embed_tokens"})), InAdapter({"model.embed_tokens"}));
    if (tied) head = InAdapter({"model.embed_tokens", "lm_head"});
    EXPECT_EQ(Tensors(Resolved(*phi, {"lm_head"}, /*tie=*/true)), head);
  }
}

TEST(TrainableSet, AModuleIsTrainedInFullOrHasAnAdapter) {
  const auto model = Llama(false);
  const TrainableSet set = Resolved(*model, {"q_proj", "layers.1.mlp.up_proj"});
  for (const LoraModule& m : set.adapters) {
    EXPECT_FALSE(m.path.ends_with("q_proj")) << m.path;
    EXPECT_NE(m.path, "model.layers.1.mlp.up_proj");
  }
  EXPECT_EQ(set.adapters.size(), 14u - 3);
  int64_t parameters = 2 * 32 * 32 + 32 * 48;
  for (const LoraModule& m : set.adapters) parameters += m.r * (m.in + m.out);
  EXPECT_EQ(set.Parameters(*model), parameters);
  EXPECT_EQ(set.CopiesInProducts(), 2 * 32 * 32 + 32 * 48);
  EXPECT_EQ(Resolved(*model, {"embed_tokens", "norm"}).CopiesInProducts(), 0);
}

TEST(TrainableSet, NamesThatCannotBeMeantAreRefused) {
  const auto model = Llama(false);
  const auto refused = [&](const Names& saved, const std::string& why, const std::string& file = "") {
    const auto set = ResolveTrainable(*model, {.modules_to_save = saved}, file);
    ASSERT_FALSE(set.ok()) << why;
    EXPECT_NE(set.status().message().find(why), std::string::npos) << set.status().message();
  };
  refused({"lm_haed"}, "train_modules: 'lm_haed' is no module; this model has down_proj, embed_tokens");
  refused({"mlp"}, "'mlp' ends the name of model.layers.0.mlp, which is no module with weights of its own");
  refused({"_proj"}, "list it by its whole name");
  refused({"mlp"}, "a/adapter_config.json: modules_to_save: 'mlp'", "a/adapter_config.json");
  // PEFT ignores names of no module.
  EXPECT_TRUE(ResolveTrainable(*model, {.modules_to_save = Names{"score", "norm"}}, "a/adapter_config.json").ok());
}

TEST(TrainableSet, SaysWhatBecomesOfATiedHead) {
  const auto note = [](bool tied, const Names& saved, bool tie) {
    const auto model = Llama(tied);
    return NoteOnTies({.modules_to_save = saved, .ensure_weight_tying = tie}, Resolved(*model, saved, tie));
  };
  for (const char* name : {"embed_tokens", "lm_head"}) {
    EXPECT_NE(note(true, {name}, false).find("does not follow the other"), std::string::npos);
    EXPECT_EQ(note(true, {name}, true), "");
    EXPECT_EQ(note(false, {name}, false), "");
    EXPECT_NE(note(false, {name}, true).find("has no effect"), std::string::npos);
  }
  EXPECT_NE(note(true, {"norm"}, true).find("has no effect"), std::string::npos);
  EXPECT_EQ(Resolved(*Llama(true), {"lm_head", "embed_tokens", "model.norm"}).CopiedModules(),
            (Names{"model.embed_tokens", "lm_head", "model.norm"}));
}

// Of a graph: the weight that the lookup and the head read.
std::pair<std::string, std::string> Tables(const Graph& graph) {
  std::pair<std::string, std::string> names;
  for (const Node& node : graph.nodes()) {
    if (node.op == Op::kEmbedding) names.first = graph.value(node.inputs[0]).name;
    if (node.op == Op::kLinearCrossEntropy) names.second = graph.value(node.inputs[1]).name;
  }
  return names;
}

TEST(TrainableSet, ReadersOfATiedTableReadTheCopyThatIsTheirs) {
  const auto model = Llama(true);
  const std::string table = "model.embed_tokens.weight", own = "base_model.model." + table,
                    head = "base_model.model.lm_head.weight";
  const auto tables = [&](const Names& saved, bool tie = false) {
    const AdaptedModel adapted{.model = *model, .trains = Resolved(*model, saved, tie)};
    const Graph graph = adapted.Forward({.tokens = 8, .row = 8, .training = true});
    EXPECT_TRUE(Verify(graph).ok()) << Verify(graph).message();
    std::set<ValueId> read;
    for (const Node& node : graph.nodes()) read.insert(node.inputs.begin(), node.inputs.end());
    for (ValueId id = 0; id < graph.num_values(); ++id) {
      const Value& v = graph.value(id);
      if (v.role != Role::kWeight) continue;
      EXPECT_TRUE(read.contains(id)) << v.name << " would take memory for nothing";
      EXPECT_EQ(v.trainable, v.name.starts_with("base_model.")) << v.name;
    }
    return Tables(graph);
  };
  using Pair = std::pair<std::string, std::string>;
  EXPECT_EQ(tables({"norm"}), Pair(table, table));
  EXPECT_EQ(tables({"embed_tokens"}), Pair(own, table));
  EXPECT_EQ(tables({"lm_head"}), Pair(table, head));
  EXPECT_EQ(tables({"lm_head", "embed_tokens"}), Pair(own, head));
  EXPECT_EQ(tables({"embed_tokens"}, /*tie=*/true), Pair(own, own));
}

TEST(TrainableSet, CopiesStayAsComputedWhereTheBaseIsQuantised) {
  const auto model = Llama(true);
  for (const bool training : {true, false}) {
    const AdaptedModel adapted{.model = *model,
                               .trains = Resolved(*model, {"embed_tokens", "v_proj"}),
                               .base = {.modules = ElementFormat::Nf4(), .embedding = ElementFormat::Int8Rows()}};
    const Graph graph = adapted.Forward({.dtype = DType::kBF16, .tokens = 8, .row = 8, .training = training});
    std::map<std::string, std::string> types;
    for (ValueId id = 0; id < graph.num_values(); ++id) {
      types[graph.value(id).name] = graph.value(id).type.dtype == DType::kBF16 ? "bf16" : "kept";
    }
    EXPECT_EQ(types["base_model.model.model.embed_tokens.weight"], "bf16");
    EXPECT_EQ(types["base_model.model.model.layers.0.self_attn.v_proj.weight"], "bf16");
    EXPECT_EQ(types["model.embed_tokens.weight"], "kept") << "the head's";
    EXPECT_EQ(types["model.layers.0.self_attn.q_proj.weight"], "kept");
  }
}

// Every copy begins as the model's weight, wherever that lies in files.
TEST(TrainableSet, CopiesAreReadFromTheModelsFiles) {
  for (const auto& model : {Llama(true), Llama(false), Phi3(), Gpt2()}) {
    std::map<std::string, StoredWeight> stored;
    for (const StoredWeight& w : StoredWeightsAndCopies(*model)) stored[w.name] = w;
    const bool tied = model->facts().tied;
    for (const WeightDeclaration& w : model->weights()) {
      const StoredWeight& copy = stored.at("base_model.model." + w.name);
      EXPECT_EQ(copy.source.tensors(), w.source.tensors());
    }
    if (tied) EXPECT_TRUE(stored.contains("base_model.model.lm_head.weight"));
  }
}

}  // namespace
}  // namespace temper::trainable_set_test
