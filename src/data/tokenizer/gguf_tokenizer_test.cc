// Tokenizers that were written to a GGUF file and read back give the ids that they gave.
#include "data/tokenizer/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/project_folder_for_test.h"
#include "data/tokenizer/gguf_vocabulary.h"
#include "data/tokenizer/load_tokenizer.h"
#include "data/tokenizer/memory_folder.h"
#include "format/json.h"

namespace temper::gguf_tokenizer_test {
namespace {

const std::string kFolder = std::string(kProjectFolder) + "/tests/tokenizer/";

struct Case {
  const char *name, *file;  // of kFolder, or behind "data:"
  const char* config;       // tokenizer_config.json
};

// Compares every `step`th text.
void ExpectRoundTrip(MemoryFolder& env, const Json& texts, size_t step) {
  const auto before = LoadTokenizer(env, MemoryFolder::kPath);
  ASSERT_TRUE(before.ok()) << before.status().message();
  const auto written = DescribeVocabulary(env, MemoryFolder::kPath, **before, (*before)->vocab_size());
  ASSERT_TRUE(written.ok()) << written.status().message();
  const auto files = TokenizerFilesOfGguf(written->metadata, "f.gguf");
  ASSERT_TRUE(files.ok()) << files.status().message();
  MemoryFolder folder;
  folder.files = *files;
  const auto after = LoadTokenizer(folder, MemoryFolder::kPath);
  ASSERT_TRUE(after.ok()) << after.status().message();
  EXPECT_EQ((*after)->bos(), (*before)->bos());
  EXPECT_EQ((*after)->eos(), (*before)->eos());
  EXPECT_EQ((*after)->stop_ids(), (*before)->stop_ids());
  size_t others = 0;
  for (size_t i = 0; i < texts.size(); i += step) {
    const auto& t = texts[i].get_ref<const std::string&>();
    const auto a = (*before)->Encode(t), b = (*after)->Encode(t);
    ASSERT_TRUE(a.ok() && b.ok());
    if (*a != *b && others++ < 3) ADD_FAILURE() << "'" << t << "' has other ids";
    if (others == 0) EXPECT_EQ((*after)->Decode(*b), (*before)->Decode(*a)) << t;
  }
  EXPECT_EQ(others, 0u);
}

TEST(GgufTokenizer, WrittenAndReadBackGivesTheSameIds) {
  const Json goldens = *ReadJsonFile(PosixEnv(), kFolder + "model_goldens.json");
  const char* const data = std::getenv("TEMPER_TEST_DATA");
  const Case cases[] = {
      {"SentencePiece", "tiny_sentencepiece/tokenizer.model",
       R"({"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "legacy": true})"},
      {"tiktoken", "tiny_tiktoken/tiktoken.model", R"({"tokenizer_class": "LlamaTokenizer"})"},
      {"Llama 3", "data:tokenizers/llama3/tokenizer.model", "{}"},
      {"Llama 2", "data:tokenizers/llama2/tokenizer.model",
       R"({"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>"})"}};
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    const bool outside = std::string_view(one.file).starts_with("data:");
    if (outside && data == nullptr) continue;
    const std::string path = outside ? JoinPath(data, one.file + 5) : kFolder + one.file;
    if (outside && !PosixEnv().IsFile(path)) continue;
    MemoryFolder env;
    env.files[std::string(BaseName(path))] = *ReadTextFile(PosixEnv(), path);
    env.files["tokenizer_config.json"] = one.config;
    ExpectRoundTrip(env, goldens["texts"], outside ? 10 : 1);
  }
}

TEST(GgufTokenizer, ByteLevelMergesComeBackWithTheirPreTokenizer) {
  const Json goldens = *ReadJsonFile(PosixEnv(), kFolder + "model_goldens.json");
  MemoryFolder env;
  for (const char* name : {"vocab.json", "merges.txt", "tokenizer_config.json"}) {
    env.files[name] = *ReadTextFile(PosixEnv(), kFolder + "tiny_gpt2/" + name);
  }
  ExpectRoundTrip(env, goldens["texts"], 1);
}

TEST(GgufTokenizer, SaysWhatIsMissingOrNotKnown) {
  const auto refused = [](const std::function<void(GgufMetadata&)>& change) {
    GgufMetadata keys;
    keys.Set("tokenizer.ggml.model", std::string("gpt2"));
    keys.Set("tokenizer.ggml.pre", std::string("qwen2"));
    keys.Set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab"});
    keys.Set("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
    change(keys);
    const auto files = TokenizerFilesOfGguf(keys, "f.gguf");
    return files.ok() ? std::string("OK") : files.status().message();
  };
  EXPECT_EQ(refused([](auto&) {}), "OK");
  EXPECT_EQ(refused([](auto& k) { k.Set("tokenizer.ggml.model", std::string("none")); }), "OK");
  const auto expect = [&](const char* words, const std::function<void(GgufMetadata&)>& change) {
    const std::string message = refused(change);
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  expect("kind 'bert'", [](auto& k) { k.Set("tokenizer.ggml.model", std::string("bert")); });
  expect("pre-tokenizer 'poro-chat'", [](auto& k) { k.Set("tokenizer.ggml.pre", std::string("poro-chat")); });
  expect("pre-tokenizer 'default'", [](auto& k) { k.Set("tokenizer.ggml.pre", std::string("default")); });
  expect("no list of tokens", [](auto& k) { k.Set("tokenizer.ggml.tokens", uint32_t{1}); });
  expect("2 entries for 3 tokens", [](auto& k) { k.Set("tokenizer.ggml.token_type", std::vector<int32_t>{1, 1}); });
  expect("is not two tokens", [](auto& k) { k.Set("tokenizer.ggml.merges", std::vector<std::string>{"ab"}); });
  expect("eos_token_id is 3", [](auto& k) { k.Set("tokenizer.ggml.eos_token_id", uint32_t{3}); });
  expect("no list of merges", [](auto& k) { k.Set("tokenizer.ggml.merges", true); });
  expect("token 1 is not UTF-8", [](auto& k) {
    k.Set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "\xFF", "ab"});
  });
  expect("0 entries for 3 tokens", [](auto& k) { k.Set("tokenizer.ggml.model", std::string("llama")); });
}

TEST(GgufTokenizer, ChatTemplatesAndEndsOfTurnsAreFiles) {
  GgufMetadata keys;
  keys.Set("tokenizer.ggml.model", std::string("gpt2"));
  keys.Set("tokenizer.ggml.pre", std::string("gpt-2"));
  keys.Set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "<e>", "<t>"});
  keys.Set("tokenizer.ggml.token_type", std::vector<int32_t>{1, 3, 3});
  keys.Set("tokenizer.ggml.merges", std::vector<std::string>{});
  keys.Set("tokenizer.ggml.eos_token_id", uint32_t{1});
  keys.Set("tokenizer.ggml.eot_token_id", uint32_t{2});
  keys.Set("tokenizer.chat_template", std::string("{{ messages }}"));
  keys.Set("tokenizer.chat_template.tool_use", std::string("{{ tools }}"));
  keys.Set("tokenizer.chat_template.../../x", std::string("no file"));
  const auto files = TokenizerFilesOfGguf(keys, "f.gguf");
  ASSERT_TRUE(files.ok()) << files.status().message();
  EXPECT_EQ(files->at("chat_template.jinja"), "{{ messages }}");
  EXPECT_EQ(files->at("additional_chat_templates/tool_use.jinja"), "{{ tools }}");
  EXPECT_EQ(Json::parse(files->at("generation_config.json"))["eos_token_id"], (std::vector<int>{1, 2}));
  EXPECT_EQ(files->size(), 5u);
}

}  // namespace
}  // namespace temper::gguf_tokenizer_test
