// quantization_config of GPTQ, AWQ, compressed-tensors, FP8 and bitsandbytes, in the spellings of transformers 5.24.
#include "model/published_quantisation.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace temper::published_quantisation_test {
namespace {

const char* const kPacked = R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
  "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "group",
  "group_size": 32}}}})";

TEST(PublishedQuantisation, GivesTheFormatThatMemoryKeeps) {
  for (const auto& [config, format] : std::initializer_list<std::pair<std::string, std::string>>{
           {R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": false})", "int4_g128"},
           {R"({"quant_method": "gptq", "bits": 4, "group_size": -1, "format": "gptq"})", "int4_g128"},
           {R"({"quant_method": "gptq", "bits": 4, "group_size": 64, "checkpoint_format": "gptq"})", "int4_g64"},
           {R"({"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm"})", "int4_g64"},
           {R"({"quant_method": "awq", "w_bit": 4, "q_group_size": 32, "format": "gemm"})", "int4_g32"},
           {kPacked, "int4_g32"},
           {R"({"quant_method": "bitsandbytes", "load_in_8bit": true})", "int8"},
           {R"({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": null})", "fp8"}}) {
    const auto read = ReadPublished(Json::parse(config), "m");
    ASSERT_TRUE(read.ok() && *read && (*read)->format) << config << " " << read.status().message();
    EXPECT_EQ(ToString(*(*read)->format), format) << config;
  }
  EXPECT_EQ((*ReadPublished(Json::parse(kPacked), "m"))->left, std::vector<std::string>{"lm_head"});
}

TEST(PublishedQuantisation, ColumnsInAnotherOrderAreDequantisedAndSaidSo) {
  const auto read =
      ReadPublished(Json::parse(R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": true})"), "m");
  ASSERT_TRUE(read.ok() && *read);
  EXPECT_FALSE((*read)->format);
  EXPECT_NE((*read)->note.find("desc_act"), std::string::npos);
}

// A zero of gptq_v2 is one more than the same bits say in gptq; AWQ's gemv has its words in another order.
TEST(PublishedQuantisation, WhatIsPackedInAnotherWayIsRefusedByKeyAndValue) {
  for (const auto& [config, key] : std::initializer_list<std::pair<std::string, std::string>>{
           {R"({"quant_method": "gptq", "bits": 8, "group_size": 128})", "bits: 8"},
           {R"({"quant_method": "gptq", "bits": 4, "group_size": 16})", "group_size: 16"},
           {R"({"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"})", "checkpoint_format: \"gptq_v2\""},
           {R"({"quant_method": "gptq", "bits": 4, "format": "gptq_v2"})", "format: \"gptq_v2\""},
           {R"({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemv"})", "version: \"gemv\""},
           {R"({"quant_method": "awq", "bits": 4, "group_size": 128, "format": "llm-awq"})", "format: \"llm-awq\""}}) {
    const auto read = ReadPublished(Json::parse(config), "m");
    EXPECT_EQ(read.status().code(), StatusCode::kUnsupported) << config;
    EXPECT_NE(read.status().message().find("quantization_config has " + key), std::string::npos)
        << read.status().message();
  }
}

}  // namespace
}  // namespace temper::published_quantisation_test
