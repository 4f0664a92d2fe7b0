#include "data/tokenizer/new_tokens.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/project_folder_for_test.h"
#include "base/scratch_folder.h"
#include "data/tokenizer/load_tokenizer.h"
#include "format/json.h"

namespace temper::new_tokens_test {
namespace {

const std::string kFolder = std::string(kProjectFolder) + "/tests/tokenizer/tiny_llama2";

Result<std::vector<AddedToken>> Read(const std::string& text, const std::string& name = "tokens.txt") {
  const ScratchFolder folder;
  const std::string path = folder / name;
  TEMPER_CHECK(WriteTextFileAtomically(PosixEnv(), path, text).ok());
  return ReadNewTokens(PosixEnv(), path);
}

TEST(NewTokens, AreLinesOrAListOfThem) {
  const auto lines = Read("<|a|>\r\n<|b|>");
  ASSERT_TRUE(lines.ok()) << lines.status().message();
  ASSERT_EQ(lines->size(), 2u);
  EXPECT_EQ((*lines)[0].content, "<|a|>");
  EXPECT_TRUE((*lines)[1].special && !(*lines)[1].normalized);
  const auto list = Read(R"(["<|a|>", {"content": "word", "special": false, "lstrip": true}])", "tokens.json");
  ASSERT_TRUE(list.ok()) << list.status().message();
  EXPECT_TRUE((*list)[0].special);
  EXPECT_TRUE(!(*list)[1].special && (*list)[1].normalized && (*list)[1].lstrip);
  EXPECT_EQ((*Read("\xEF\xBB\xBF<|a|>\n"))[0].content, "<|a|>") << "a byte order mark is no part of it";
  EXPECT_EQ(Read("[INST]\n[/INST]\n")->size(), 2u) << "no JSON";
}

TEST(NewTokens, WhatCannotBeMeantIsNamedWithItsPlace) {
  const auto expect = [](const std::string& text, const std::string& name, const std::string& message) {
    const Status status = Read(text, name).status();
    EXPECT_NE(status.message().find(message), std::string::npos) << status.message();
  };
  expect("", "t.txt", "has no token");
  expect("<|a|>\n\n<|b|>\n", "t.txt", "line 2: is empty: remove it");
  expect("<|a|>\n<|a|>\n", "t.txt", "line 2: '<|a|>' was listed before (");
  expect("<|a|>\n\xff<x>\n", "t.txt", "line 2: is not UTF-8");
  expect(R"(["a", 3])", "t.json", "entry 2 should be a text");
  expect(R"([{"content": "a", "id": 7}])", "t.json", "entry 1 has an unknown key 'id'");
  expect(R"([{"special": true}])", "t.json", "entry 1: is empty");
}

TEST(NewTokens, AreReadAsTheirIdsFromTheFilesThatTheyAreWrittenTo) {
  auto tokenizer = LoadTokenizer(PosixEnv(), kFolder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const auto size = static_cast<int32_t>((*tokenizer)->vocab_size());
  auto tokens = *Read("<|new|>\n<|other|>\n");
  ASSERT_TRUE(NumberNewTokens(**tokenizer, "f", &tokens).ok());
  EXPECT_EQ(tokens[0].id, size);
  EXPECT_EQ(tokens[1].id, size + 1);
  const auto files = FilesWithTokens(PosixEnv(), kFolder, {}, tokens);
  ASSERT_TRUE(files.ok()) << files.status().message();
  const ScratchFolder folder;
  for (const auto& [name, text] : *files) ASSERT_TRUE(WriteTextFileAtomically(PosixEnv(), folder / name, text).ok());
  auto changed = LoadTokenizer(PosixEnv(), folder.path());
  ASSERT_TRUE(changed.ok()) << changed.status().message();
  const auto ids = (*changed)->Encode("a<|other|>b<|new|>", {.add_special = false});
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(std::count(ids->begin(), ids->end(), size) + std::count(ids->begin(), ids->end(), size + 1), 2);
  EXPECT_TRUE((*changed)->IsSpecial(size));
  auto again = *Read("<|new|>\n");
  const Status there = NumberNewTokens(**changed, "f", &again);
  EXPECT_NE(there.message().find("is token " + std::to_string(size) + " of the tokenizer already: remove it"),
            std::string::npos)
      << there.message();
}

}  // namespace
}  // namespace temper::new_tokens_test
