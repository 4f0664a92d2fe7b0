#include "model/lora_layers.h"

#include <gtest/gtest.h>

#include "model/lora.h"

namespace temper::lora_layers_test {
namespace {

using Names = std::vector<std::string>;

// The expected values are those of PEFT 0.21's check_target_module_exists.
TEST(LoraLayers, AreChosenAsPeftChoosesThem) {
  const struct {
    const char *path, *target;
    std::vector<int64_t> layers;
    Names patterns;
    bool selected;
  } cases[] = {
      {"model.layers.1.self_attn.q_proj", "q_proj", {1}, {}, true},
      {"model.layers.1.self_attn.q_proj", "q_proj", {0, 2}, {}, false},
      {"model.layers.11.self_attn.q_proj", "q_proj", {1}, {}, false},
      {"model.layers.1.self_attn.q_proj", "q_proj", {1}, {}, true},
      {"model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.q_proj", {0}, {}, true},
      {"model.layers.1.self_attn.q_proj", "q_proj", {1}, {"layers"}, true},
      {"model.layers.1.self_attn.q_proj", "q_proj", {1}, {"h"}, false},
      {"model.layers.1.self_attn.q_proj", "q_proj", {1}, {"h", "layers"}, true},
      {"model.layers.1.self_attn.q_proj", "q_proj", {1}, {"layer."}, true},
      {"model.layers.1.self_attn.q_proj", "q_proj", {1}, {"model.layers"}, true},
      {"model.layers.1.self_attn.q_proj", "q_proj", {1}, {"ayers"}, false},
      {"model.layers.1.self_attn.q_proj", "q_proj", {1}, {}, true},
      {"transformer.h.0.attn.c_attn", "c_attn", {0}, {}, true},
      {"transformer.h.0.attn.c_attn", "c_attn", {0}, {"h"}, true},
      {"h.0.attn.c_attn", "c_attn", {0}, {}, false},
      {"h.0.attn.c_attn", "c_attn", {0}, {"h"}, true},
      {"lm_head", "lm_head", {0}, {}, true},
      {"model.lm_head", "lm_head", {0}, {}, false},
      {"model.decoder.project_in", "project_in", {0}, {}, false},
      {"model.layers.1.experts.0.w1", "w1", {1}, {}, true},
      {"model.layers.1.experts.0.w1", "w1", {0}, {}, false},
      {"model.layers.1.experts.0.w1", "w1", {0}, {"experts"}, true},
      {"model.layers.1.experts.0.w1", "w1", {1}, {"experts"}, false},
      {"a.b.c.2.x.3.w", "w", {2}, {}, true},
      {"a.0.1.w", "w", {0}, {}, false},
      {"a.0.1.w", "w", {1}, {}, true},
      {"a.b.7", "7", {7}, {}, false},
  };
  for (const auto& c : cases) {
    const LinearModule module{.path = c.path, .weights = {"w"}, .rows = {4}, .in = 4};
    const auto targets = ResolveLora(
        {module}, {.target_modules = Names{c.target}, .layers_to_transform = c.layers, .layers_pattern = c.patterns});
    EXPECT_EQ(targets.ok(), c.selected) << c.path << " " << c.target << ": " << targets.status().message();
  }
}

TEST(LoraLayers, WhatPeftRefusesIsRefused) {
  const LinearModule module{.path = "model.layers.0.q_proj", .weights = {"w"}, .rows = {4}, .in = 4};
  const auto refused = [&](const LoraConfig& config) { return ResolveLora({module}, config).status().message(); };
  EXPECT_NE(refused({.target_modules = ".*q_proj", .layers_to_transform = {0}}).find("not a regular expression"),
            std::string::npos);
  EXPECT_NE(refused({.target_modules = Names{"q_proj"}, .layers_pattern = "layers"}).find("layers_to_transform"),
            std::string::npos);
  EXPECT_NE(refused({.target_modules = Names{"q_proj"}, .layers_to_transform = {0}, .layers_pattern = "("})
                .find("layers_pattern: '"),
            std::string::npos);
  EXPECT_NE(refused({.layers_to_transform = {7}}).find("selects no linear module of layers_to_transform"),
            std::string::npos);
}

}  // namespace
}  // namespace temper::lora_layers_test
