#include "data/tokenizer/transformers_files.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/project_folder_for_test.h"
#include "data/tokenizer/load_tokenizer.h"
#include "data/tokenizer/memory_folder.h"
#include "format/json.h"

namespace temper::transformers_files_test {
namespace {

const std::string kTiny = std::string(kProjectFolder) + "/tests/tokenizer/";

// A folder like Llama 2's, whose tokenizer.json puts `post_processor` around a text.
MemoryFolder Folder(const std::string& config, const char* post_processor = nullptr) {
  MemoryFolder folder;
  auto json = OrderedJson::parse(*ReadTextFile(PosixEnv(), kTiny + "tiny_llama2/tokenizer.json"));
  if (post_processor) json["post_processor"] = OrderedJson::parse(post_processor);
  folder.files["tokenizer.json"] = json.dump();
  folder.files["tokenizer_config.json"] = config;
  return folder;
}

std::vector<int32_t> Ids(MemoryFolder& folder, const std::string& text) {
  const auto tokenizer = LoadTokenizer(folder, MemoryFolder::kPath);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return tokenizer.ok() ? *(*tokenizer)->Encode(text) : std::vector<int32_t>();
}

MemoryFolder Exported(MemoryFolder& folder) {
  MemoryFolder out;
  out.files = folder.files;
  for (const auto& [name, text] : FilesForTransformers(folder, MemoryFolder::kPath).replaced) {
    if (text) out.files[name] = *text;
    if (!text) out.files.erase(name);
  }
  return out;
}

TEST(TransformersFiles, ALlamaTokenizerIsExportedAsAClassThatIsReadUnchanged) {
  for (const char* config :
       {R"({"tokenizer_class":"LlamaTokenizer","bos_token":"<s>","eos_token":"</s>"})",
        R"({"tokenizer_class":"LlamaTokenizerFast","add_bos_token":true,"bos_token":"<s>","eos_token":"</s>"})",
        R"({"tokenizer_class":"LlamaTokenizer","add_bos_token":false,"bos_token":"<s>","eos_token":"</s>"})",
        R"({"tokenizer_class":"LlamaTokenizer","add_eos_token":true,"bos_token":"<s>","eos_token":"</s>"})"}) {
    for (const char* post_processor :
         {"null", R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},
             {"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[1],
             "tokens":["<s>"]}}})"}) {
      MemoryFolder folder = Folder(config, post_processor);
      const std::vector<int32_t> trained = Ids(folder, " hello");
      EXPECT_FALSE(FilesForTransformers(folder, MemoryFolder::kPath).why.empty());
      MemoryFolder exported = Exported(folder);
      auto written = OrderedJson::parse(exported.files["tokenizer_config.json"]);
      EXPECT_EQ(written["tokenizer_class"], "PreTrainedTokenizerFast");
      EXPECT_EQ(Ids(exported, " hello"), trained);
      // For this class only the pipeline counts.
      written.erase("add_bos_token");
      written.erase("add_eos_token");
      exported.files["tokenizer_config.json"] = written.dump();
      EXPECT_EQ(Ids(exported, " hello"), trained) << config << post_processor;
    }
  }
}

// tokenizers finds a normalized special token only where "\xE2\x96\x81", which begins every text, precedes it.
TEST(TransformersFiles, SpecialTokensThatAPipelineSplitsAreFoundAndExportedSo) {
  MemoryFolder folder = Folder(R"({"tokenizer_class":"LlamaTokenizer","bos_token":"<s>","eos_token":"</s>"})");
  auto json = OrderedJson::parse(folder.files["tokenizer.json"]);
  for (auto& token : json["added_tokens"]) token["normalized"] = true;
  folder.files["tokenizer.json"] = json.dump();
  MemoryFolder exported = Exported(folder), unchanged = folder;
  unchanged.files["tokenizer_config.json"] = R"({"tokenizer_class":"PreTrainedTokenizerFast"})";
  for (const char* text : {"hello</s>", "hello</s>hello <s> hello", "hello<s>"}) {
    EXPECT_EQ(Ids(exported, text), Ids(folder, text)) << text;
    EXPECT_NE(Ids(unchanged, text), Ids(folder, text)) << text;
  }
  EXPECT_EQ(Ids(folder, "hello</s>").back(), 2);
  EXPECT_NE(FilesForTransformers(folder, MemoryFolder::kPath).why.find("splits special tokens"), std::string::npos);
}

TEST(TransformersFiles, OtherClassesStayAsTheyAre) {
  MemoryFolder folder = Folder(R"({"tokenizer_class":"Qwen2TokenizerFast","add_bos_token":true,"bos_token":"<s>"})");
  EXPECT_TRUE(FilesForTransformers(folder, MemoryFolder::kPath).replaced.empty());
  folder.files["tokenizer_config.json"] = R"({"tokenizer_class":"LlamaTokenizer"})";
  folder.files.erase("tokenizer.json");
  EXPECT_TRUE(FilesForTransformers(folder, MemoryFolder::kPath).replaced.empty());
}

TEST(TransformersFiles, ABrokenPipelineIsReplacedByTheModelBesideIt) {
  MemoryFolder folder;
  for (const char* name : {"tokenizer.model", "tokenizer_config.json"}) {
    folder.files[name] = *ReadTextFile(PosixEnv(), kTiny + "tiny_sentencepiece/" + name);
  }
  const std::vector<int32_t> ids = Ids(folder, " hello");
  folder.files["tokenizer.json"] = R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a  "]}})";
  EXPECT_EQ(Ids(folder, " hello"), ids);
  EXPECT_FALSE(Exported(folder).files.contains("tokenizer.json"));
  // Without a fallback the error is reported.
  folder.files.erase("tokenizer.model");
  const auto refused = LoadTokenizer(folder, MemoryFolder::kPath);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("merge 0 is not two tokens"), std::string::npos);
  EXPECT_TRUE(FilesForTransformers(folder, MemoryFolder::kPath).replaced.empty());
}

}  // namespace
}  // namespace temper::transformers_files_test
