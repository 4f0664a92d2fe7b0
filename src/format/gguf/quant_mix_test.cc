// Which types tensors get. llama.cpp's own choices are compared by tests/parity/gguf/check_gguf.py (blocks).
#include "format/gguf/quant_mix.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <map>

namespace temper::quant_mix_test {
namespace {

std::vector<GgufDeclaration> Tensors(int64_t blocks, int64_t columns, bool tied) {
  std::vector<GgufDeclaration> tensors = {{"token_embd.weight", {1024, columns}}};
  for (int64_t b = 0; b < blocks; ++b) {
    tensors.push_back({fmt::format("blk.{}.attn_norm.weight", b), {columns}});
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down"}) {
      tensors.push_back({fmt::format("blk.{}.{}.weight", b, name), {columns, columns}});
    }
  }
  tensors.push_back({"output_norm.weight", {columns}});
  if (!tied) tensors.push_back({"output.weight", {1024, columns}});
  return tensors;
}

std::map<std::string, std::string> TypesOf(QuantMix mix, MixedModel model, std::vector<GgufDeclaration> tensors,
                                           std::vector<std::string>* lines = nullptr) {
  const auto said = ChooseTypes(mix, model, tensors);
  if (lines != nullptr) *lines = said;
  std::map<std::string, std::string> types;
  for (const GgufDeclaration& t : tensors) types[t.name] = FormatOf(t.type).name;
  return types;
}

TEST(QuantMix, FourBitsForMostAndSixForWhatMatters) {
  const MixedModel model{.architecture = "llama", .blocks = 9, .heads = 8, .kv_heads = 2};
  auto types = TypesOf(QuantMix::kQ4KM, model, Tensors(9, 512, false));
  EXPECT_EQ(types["token_embd.weight"], "q4_k");
  EXPECT_EQ(types["output.weight"], "q6_k");
  EXPECT_EQ(types["output_norm.weight"], "f32");
  std::string values, downs;
  for (int b = 0; b < 9; ++b) {
    values += types[fmt::format("blk.{}.attn_v.weight", b)][1];
    downs += types[fmt::format("blk.{}.ffn_down.weight", b)][1];
    EXPECT_EQ(types[fmt::format("blk.{}.attn_norm.weight", b)], "f32");
    EXPECT_EQ(types[fmt::format("blk.{}.attn_q.weight", b)], "q4_k");
  }
  EXPECT_EQ(values, "644644666");
  EXPECT_EQ(downs, values);
}

TEST(QuantMix, ATiedEmbeddingIsQuantisedAsTheHeadThatItIs) {
  const MixedModel model{.architecture = "llama", .blocks = 1, .heads = 8, .kv_heads = 8};
  EXPECT_EQ(TypesOf(QuantMix::kQ4KM, model, Tensors(1, 256, true))["token_embd.weight"], "q6_k");
  EXPECT_EQ(TypesOf(QuantMix::kQ8_0, model, Tensors(1, 256, true))["token_embd.weight"], "q8_0");
}

TEST(QuantMix, RowsThatAreNotWholeBlocksGetSmallerBlocksAndTheUserIsTold) {
  const MixedModel model{.architecture = "llama", .blocks = 1, .heads = 3, .kv_heads = 3};
  std::vector<std::string> lines;
  auto types = TypesOf(QuantMix::kQ4KM, model, Tensors(1, 96, false), &lines);
  EXPECT_EQ(types["blk.0.attn_q.weight"], "q5_0");
  EXPECT_EQ(types["blk.0.attn_v.weight"], "q8_0");  // in the place of q6_k
  EXPECT_EQ(lines.size(), 2U);
  types = TypesOf(QuantMix::kQ8_0, model, Tensors(1, 36, false), &lines);
  EXPECT_EQ(types["blk.0.attn_q.weight"], "f16");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("rows of 36"), std::string::npos) << lines[0];
}

TEST(QuantMix, EightExpertsGetMoreBitsInAttention) {
  const MixedModel model{.architecture = "llama", .blocks = 1, .heads = 8, .kv_heads = 2, .experts = 8};
  auto types = TypesOf(QuantMix::kQ4KM, model, Tensors(1, 256, false));
  EXPECT_EQ(types["blk.0.attn_v.weight"], "q8_0");
  EXPECT_EQ(types["blk.0.attn_k.weight"], "q8_0");
  EXPECT_EQ(types["blk.0.attn_output.weight"], "q5_k");
}

TEST(QuantMix, VectorsAndRoutersStayInF32) {
  const MixedModel model{.architecture = "llama", .blocks = 1, .heads = 8, .kv_heads = 2, .experts = 4};
  for (const QuantMix mix : {QuantMix::kF16, QuantMix::kBF16, QuantMix::kQ8_0, QuantMix::kQ4KS}) {
    auto types = TypesOf(mix, model,
                         {{"blk.0.ffn_gate_inp.weight", {4, 256}},
                          {"blk.0.attn_q.bias", {256}},
                          {"position_embd.weight", {64, 256}},
                          {"blk.0.attn_q_norm.weight", {2, 128}}});
    for (const auto& [name, type] : types) EXPECT_EQ(type, "f32") << name;
  }
}

}  // namespace
}  // namespace temper::quant_mix_test
