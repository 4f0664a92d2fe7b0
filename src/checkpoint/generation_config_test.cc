#include "checkpoint/generation_config.h"

#include <gtest/gtest.h>

#include "format/memory_env_for_test.h"

namespace temper::generation_config_test {
namespace {

Result<GenerationDefaults> Read(const std::string& text) {
  MemoryEnv env;
  env.files["m/generation_config.json"] = text;
  return ReadGenerationDefaults(env, "m");
}

TEST(GenerationConfig, SaysHowTransformersSamples) {
  const auto read = Read(R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.1,
    "repetition_penalty": 1.05, "max_length": 4096, "pad_token_id": null})");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_TRUE(read->samples);
  EXPECT_EQ(read->temperature, 0.6);
  EXPECT_EQ(read->top_k, 20);
  EXPECT_EQ(read->top_p, 0.95);
  EXPECT_EQ(read->min_p, 0.1);
  EXPECT_EQ(read->repetition_penalty, 1.05);
}

TEST(GenerationConfig, ThatSamplesHasTransformersDefaults) {
  const auto read = Read(R"({"do_sample": true, "temperature": null})");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->temperature, 1);
  EXPECT_EQ(read->top_k, 50);
  EXPECT_EQ(read->top_p, std::nullopt);
}

TEST(GenerationConfig, WithoutSamplingOrWithoutAFileTakesTheMostProbableToken) {
  const auto read = Read(R"({"temperature": 0.6, "repetition_penalty": 1.1})");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_FALSE(read->samples);
  EXPECT_EQ(read->top_k, std::nullopt);
  EXPECT_EQ(read->repetition_penalty, 1.1) << "it has an effect also then";
  MemoryEnv empty;
  EXPECT_FALSE(ReadGenerationDefaults(empty, "m")->samples);
}

TEST(GenerationConfig, ThatIsNotWhatItShouldBeIsNamed) {
  for (const char* text : {R"({"do_sample": "yes"})", R"({"do_sample": true, "top_p": 1.5})", R"({"top_k": -1})",
                           R"({"repetition_penalty": 0})", R"({"temperature": "hot"})"}) {
    const auto read = Read(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_NE(read.status().message().find("m/generation_config.json: "), std::string::npos) << read.status().message();
  }
}

}  // namespace
}  // namespace temper::generation_config_test
