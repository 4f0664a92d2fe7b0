#include "model/forward.h"
#include "graph/named_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/families.h"
#include "model/model.h"

namespace temper::forward_test {
namespace {

// The names of what a node of `op` reads, and of what it makes; empty: the graph has none.
struct Found {
  std::string reads, makes;
  Attributes attributes;
};
Found FindOp(const Graph& graph, Op op) {
  for (const Node& node : graph.nodes()) {
    if (node.op != op) continue;
    return {graph.value(node.inputs[0]).name, graph.value(node.outputs[0]).name, node.attributes};
  }
  return {};
}

std::unique_ptr<Model> Make(const std::string& architecture, const std::string& more = "") {
  return std::move(*ModelFromConfig(
      Json::parse(R"({"architectures": [")" + architecture + R"("], "vocab_size": 50, "hidden_size": 64,
      "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 48)" +
                  more + "}"),
      "config.json"));
}

// transformers' hook adds noise to what the embedding's module returns. Gemma's scales inside of it, Granite behind it.
TEST(Forward, NoiseOfEmbeddingsIsWhereTransformersHookAddsIt) {
  ForwardSpec spec = {.tokens = 32, .row = 16, .training = true, .neftune_noise_alpha = 5};
  const auto gemma = Make("GemmaForCausalLM", R"(, "head_dim": 32)");
  const auto granite = Make("GraniteForCausalLM", R"(, "embedding_multiplier": 3.0)");
  const Graph of_gemma = gemma->Forward(spec), of_granite = granite->Forward(spec);
  EXPECT_EQ(FindOp(of_gemma, Op::kNoise).reads, FindOp(of_gemma, Op::kScale).makes);
  EXPECT_EQ(FindOp(of_granite, Op::kNoise).reads, FindOp(of_granite, Op::kEmbedding).makes);
  EXPECT_EQ(FindOp(of_granite, Op::kScale).reads, FindOp(of_granite, Op::kNoise).makes);
  // alpha / sqrt(L d): rows of 16 tokens, 64 wide.
  EXPECT_EQ(FindOp(of_gemma, Op::kNoise).attributes.Double("magnitude"), 5 / std::sqrt(16.0 * 64));
}

TEST(Forward, NoiseIsOfTrainingAlone) {
  const auto model = Make("LlamaForCausalLM");
  EXPECT_EQ(FindOp(model->Forward({.tokens = 16, .training = false, .neftune_noise_alpha = 5}), Op::kNoise).makes, "");
  EXPECT_EQ(FindOp(model->Forward({.tokens = 16, .training = true}), Op::kNoise).makes, "");
  EXPECT_NE(FindOp(model->Forward({.tokens = 16, .training = true, .neftune_noise_alpha = 5}), Op::kNoise).makes, "");
}

}  // namespace
}  // namespace temper::forward_test
