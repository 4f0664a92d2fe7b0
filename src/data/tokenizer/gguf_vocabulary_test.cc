// Vocabularies as GGUF files hold them. The ids that llama.cpp makes of them are compared by
// tests/parity/gguf/check_gguf.py.
#include "data/tokenizer/gguf_vocabulary.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "data/tokenizer/gguf_pre_tokenizer.h"
#include "data/tokenizer/load_tokenizer.h"
#include "data/tokenizer/memory_folder.h"

namespace temper::gguf_vocabulary_test {
namespace {

Result<GgufVocabulary> Describe(MemoryFolder& env, int64_t rows) {
  TEMPER_ASSIGN_OR_RETURN(const auto tokenizer, LoadTokenizer(env, MemoryFolder::kPath));
  return DescribeVocabulary(env, MemoryFolder::kPath, *tokenizer, rows);
}

template <class T>
T Value(const GgufVocabulary& vocabulary, const char* key) {
  const GgufValue* value = vocabulary.metadata.Find(std::string("tokenizer.ggml.") + key);
  EXPECT_NE(value, nullptr) << key;
  return value == nullptr ? T() : std::get<T>(*value);
}

// "▁ab" is made of "▁a" and "b"; "ab", which the merges could make too, of "a" and "b".
Json SpaceMarks() {
  return Json::parse(R"({"added_tokens": [
      {"id": 0, "content": "<unk>", "special": true}, {"id": 1, "content": "<s>", "special": true},
      {"id": 2, "content": "</s>", "special": true}, {"id": 10, "content": "▁tool", "special": false}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "pre_tokenizer": null,
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
      {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1],
      "tokens": ["<s>"]}}},
    "decoder": null,
    "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": true, "merges": ["▁ a", "a b", "▁a b"],
      "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, "▁": 3, "a": 4, "b": 5, "▁a": 6, "ab": 7, "▁ab": 8, "<0x0A>": 9}}})");
}

TEST(GgufVocabulary, ScoresFollowTheMergesThatMakeTokens) {
  MemoryFolder env;
  env.files["tokenizer.json"] = SpaceMarks().dump();
  env.files["tokenizer_config.json"] = R"({"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"})";
  const auto v = Describe(env, 12);
  ASSERT_TRUE(v.ok()) << v.status().message();
  EXPECT_EQ(Value<std::string>(*v, "model"), "llama");
  const auto scores = Value<std::vector<float>>(*v, "scores");
  EXPECT_EQ(scores[6], -1);  // ▁a
  EXPECT_EQ(scores[7], -2);  // ab
  EXPECT_EQ(scores[8], -3);  // ▁ab
  EXPECT_EQ(Value<std::vector<int32_t>>(*v, "token_type"), (std::vector<int32_t>{3, 3, 3, 1, 1, 1, 1, 1, 1, 6, 4, 5}));
  const auto tokens = Value<std::vector<std::string>>(*v, "tokens");
  EXPECT_EQ(tokens[10], " tool");  // as llama.cpp searches it in a text
  EXPECT_EQ(tokens[11], "[PAD11]");
  EXPECT_TRUE(Value<bool>(*v, "add_bos_token"));
  EXPECT_FALSE(Value<bool>(*v, "add_eos_token"));
  EXPECT_TRUE(Value<bool>(*v, "add_space_prefix"));
  EXPECT_EQ(Value<uint32_t>(*v, "eos_token_id"), 2U);
}

TEST(GgufVocabulary, EveryTokenThatEndsATextIsSaid) {
  MemoryFolder env;
  env.files["tokenizer.json"] = SpaceMarks().dump();
  env.files["tokenizer_config.json"] = R"({"bos_token": "<s>", "eos_token": "</s>"})";
  env.files["generation_config.json"] = R"({"eos_token_id": [0, 2, 10, 1]})";
  const auto v = Describe(env, 11);
  ASSERT_TRUE(v.ok()) << v.status().message();
  EXPECT_EQ(Value<uint32_t>(*v, "eos_token_id"), 2U);
  EXPECT_EQ(Value<uint32_t>(*v, "eot_token_id"), 0U);
  EXPECT_EQ(Value<uint32_t>(*v, "eom_token_id"), 1U);
  ASSERT_FALSE(v->notices.empty());
  EXPECT_NE(v->notices.back().find("room for 3 tokens"), std::string::npos) << v->notices.back();
}

TEST(GgufVocabulary, StepsThatLlamaCppHasNotAreRefusedByName) {
  MemoryFolder env;
  Json json = SpaceMarks();
  json["normalizer"]["normalizers"].push_back({{"type", "NFKC"}});
  env.files["tokenizer.json"] = json.dump();
  const auto v = Describe(env, 11);
  EXPECT_EQ(v.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(v.status().message().find("NFKC"), std::string::npos) << v.status().message();
}

TEST(GgufVocabulary, ByteLevelMergesNameTheirPreTokenizer) {
  MemoryFolder env;
  env.files["vocab.json"] = R"({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3})";
  env.files["merges.txt"] = "#version: 0.2\na b\n";
  env.files["tokenizer_config.json"] = R"({"tokenizer_class": "GPT2Tokenizer"})";
  const auto v = Describe(env, 4);
  ASSERT_TRUE(v.ok()) << v.status().message();
  EXPECT_EQ(Value<std::string>(*v, "model"), "gpt2");
  EXPECT_EQ(Value<std::string>(*v, "pre"), "gpt-2");
  EXPECT_EQ(Value<std::vector<std::string>>(*v, "merges"), std::vector<std::string>{"a b"});
  EXPECT_EQ(Value<std::vector<int32_t>>(*v, "token_type"), (std::vector<int32_t>{1, 1, 1, 3}));
  EXPECT_EQ(v->metadata.Find("tokenizer.ggml.scores"), nullptr);
}

TEST(GgufVocabulary, TiktokensRanksBecomeMerges) {
  MemoryFolder env;
  env.files["tokenizer.model"] = "YQ== 0\nYg== 1\nYw== 2\nYmM= 3\nYWI= 4\nYWJj 5\n";  // a b c bc ab abc
  const auto v = Describe(env, 262);
  ASSERT_TRUE(v.ok()) << v.status().message();
  EXPECT_EQ(Value<std::string>(*v, "pre"), "llama-bpe");
  EXPECT_EQ(Value<std::vector<std::string>>(*v, "merges"), (std::vector<std::string>{"b c", "a b", "a bc", "ab c"}));
  EXPECT_EQ(Value<std::vector<std::string>>(*v, "tokens")[15], "<|eot_id|>");
  EXPECT_EQ(Value<std::vector<int32_t>>(*v, "token_type")[15], 3);
}

TEST(GgufVocabulary, ModelsThatAreNotBpeAreRefusedByName) {
  for (const char* type : {"Unigram", "WordPiece"}) {
    MemoryFolder env;
    Json json = SpaceMarks();
    json["model"] =
        type == std::string("Unigram")
            ? Json{{"type", type}, {"unk_id", 0}, {"vocab", Json::parse(R"([["<unk>", 0], ["<s>", 0], ["a", -1]])")}}
            : Json{{"type", type}, {"unk_token", "<unk>"}, {"vocab", {{"<unk>", 0}, {"<s>", 1}, {"a", 2}}}};
    json["added_tokens"] = Json::array();
    env.files["tokenizer.json"] = json.dump();
    const auto v = Describe(env, 3);
    EXPECT_EQ(v.status().code(), StatusCode::kUnsupported);
    EXPECT_NE(v.status().message().find(std::string("model is ") + type), std::string::npos) << v.status().message();
  }
}

TEST(GgufPreTokenizer, KnowsExpressionsWhateverTheSplitIsCalled) {
  const std::string llama3 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const auto of = [&](const std::string& expression, const char* behavior, bool invert) {
    const Json split = {
        {"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", behavior}, {"invert", invert}};
    const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    return FindGgufPreTokenizers({{"type", "Sequence"}, {"pretokenizers", {split, bytes}}}, "tokenizer.json");
  };
  const auto found = of(llama3, "Isolated", false);
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->size(), 2U);
  EXPECT_EQ((*found)[0].name, "llama-bpe");
  EXPECT_TRUE((*found)[0].ignores_merges);
  EXPECT_EQ((*found)[1].name, "smaug-bpe");
  EXPECT_TRUE(of(llama3, "Removed", true).ok());
  EXPECT_EQ(of(llama3, "Removed", false).status().code(), StatusCode::kUnsupported);
  const auto other = of(R"(\p{L}{1,7}|.)", "Isolated", false);
  EXPECT_EQ(other.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(other.status().message().find(R"(\p{L}{1,7})"), std::string::npos) << other.status().message();
}

}  // namespace
}  // namespace temper::gguf_vocabulary_test
