// The text models of Emu 3, Fuyu, GOT-OCR 2 and Apertus 1.5 inside their multimodal classes.
#include "model/nested.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/families.h"

namespace temper::nested_test {
namespace {

Json Text() {
  return Json::parse(R"({"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 4})");
}

std::unique_ptr<Model> Read(const char* architecture, const Json& text) {
  auto model = ModelFromConfig({{"architectures", {architecture}}, {"text_config", text}}, "config.json");
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

// What transformers 5.24 has in memory, which PEFT names, and what its save_pretrained writes.
TEST(Nested, NamesAreThoseOfMemoryAndOfFiles) {
  struct Case {
    const char *architecture, *module, *in_file;
  };
  for (const Case& c : {Case{"Emu3ForConditionalGeneration", "model.text_model.layers.0.self_attn.q_proj",
                             "text_model.model.embed_tokens.weight"},
                        Case{"FuyuForCausalLM", "model.language_model.layers.0.self_attn.query_key_value",
                             "language_model.model.embed_tokens.weight"},
                        Case{"GotOcr2ForConditionalGeneration", "model.language_model.layers.0.self_attn.q_proj",
                             "language_model.model.embed_tokens.weight"},
                        Case{"Apertus1p5ForConditionalGeneration", "model.language_model.layers.0.self_attn.q_proj",
                             "model.language_model.embed_tokens.weight"}}) {
    const auto model = Read(c.architecture, Text());
    EXPECT_EQ(model->modules().front().path, c.module);
    const FileTensor& table = model->weights().front().source.tensors().front();
    EXPECT_EQ(table.name, c.in_file);
    EXPECT_TRUE(model->facts().keeps_other_tensors) << c.architecture;
  }
  const auto emu = Read("Emu3ForConditionalGeneration", Text());
  const FileTensor& head = emu->weights().back().source.tensors().front();
  EXPECT_EQ(head.name, "text_model.lm_head.weight");
  EXPECT_EQ(std::count(head.aliases.begin(), head.aliases.end(), "lm_head.weight"), 1);
}

TEST(Nested, FuyusTextModelMayStandAtTheTop) {
  Json flat = Text();
  flat["architectures"] = {"FuyuForCausalLM"};
  flat["model_type"] = "fuyu";
  const auto model = ModelFromConfig(flat, "config.json");
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto nested = Read("FuyuForCausalLM", Text());
  ASSERT_EQ((*model)->weights().size(), nested->weights().size());
  for (size_t i = 0; i < nested->weights().size(); ++i) {
    EXPECT_EQ((*model)->weights()[i].name, nested->weights()[i].name);
    EXPECT_EQ((*model)->weights()[i].shape, nested->weights()[i].shape);
  }
}

}  // namespace
}  // namespace temper::nested_test
