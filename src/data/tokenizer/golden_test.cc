// Ids and texts against those of transformers and tokenizers (tests/tokenizer/make_goldens.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/project_folder_for_test.h"
#include "data/tokenizer/load_tokenizer.h"
#include "data/tokenizer/memory_folder.h"
#include "data/tokenizer/stream_decoder.h"
#include "data/tokenizer/tokenizer.h"
#include "format/json.h"

namespace temper::golden_test {
namespace {

const std::string kFolder = std::string(kProjectFolder) + "/tests/tokenizer";

const Json& Goldens() {
  static const Json goldens = [] {
    auto json = ReadJsonFile(PosixEnv(), kFolder + "/goldens.json");
    EXPECT_TRUE(json.ok()) << json.status().message();
    return json.ok() ? *json : Json::object();
  }();
  return goldens;
}

std::string Format(std::string text, const Json& tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string mark = "{" + std::to_string(i) + "}";
    for (size_t at = text.find(mark); at != text.npos; at = text.find(mark, at)) {
      text.replace(at, mark.size(), tokens[i].get<std::string>());
    }
  }
  return text;
}

std::vector<std::string> TextsFor(const Json& golden, bool is_short) {
  std::vector<std::string> texts;
  if (is_short) {
    for (const Json& i : Goldens()["short"]) texts.push_back(Goldens()["texts"][i.get<size_t>()]);
  } else {
    for (const Json& text : Goldens()["texts"]) texts.push_back(text);
  }
  if (golden["tokens"].empty()) return texts;
  for (const Json& text : Goldens()["special_texts"]) texts.push_back(Format(text, golden["tokens"]));
  return texts;
}

void ExpectIds(const Json& golden, const Tokenizer& tokenizer, bool is_short) {
  const std::vector<std::string> texts = TextsFor(golden, is_short);
  ASSERT_EQ(texts.size(), golden["ids"].size());
  for (size_t i = 0; i < texts.size(); ++i) {
    std::vector<std::string> unknown;
    const auto ids = tokenizer.Encode(texts[i], {.unknown = &unknown});
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    const auto of_unknown = tokenizer.unknown() ? std::count(ids->begin(), ids->end(), *tokenizer.unknown()) : 0;
    EXPECT_EQ(static_cast<int64_t>(unknown.size()), of_unknown) << "text " << i << ": '" << texts[i] << "'";
    for (const std::string& text : unknown) EXPECT_NE(texts[i].find(text), std::string::npos) << text;
    EXPECT_EQ(*ids, golden["ids"][i].get<std::vector<int32_t>>()) << "text " << i << ": '" << texts[i] << "'";
    if (golden.contains("text")) {
      EXPECT_EQ(tokenizer.Decode(*ids, /*skip_special=*/false), golden["text"][i]) << "text " << i;
    }
    StreamDecoder stream(tokenizer);
    std::string streamed;
    for (const int32_t id : *ids) streamed += stream.Push(id);
    streamed += stream.Finish();
    EXPECT_EQ(streamed, tokenizer.Decode(*ids)) << "text " << i << ": '" << texts[i] << "'";
  }
}

// A case's folder in memory; false if it needs outside data that is missing.
bool Assemble(const Json& golden, MemoryFolder& folder) {
  const char* data = std::getenv("TEMPER_TEST_DATA");
  for (const auto& [name, source] : golden["files"].items()) {
    const std::string where = source.get<std::string>();
    const bool outside = where.starts_with("data:");
    if (outside && !data) return false;
    const std::string path = JoinPath(outside ? data : kFolder, where.substr(where.find(':') + 1));
    if (outside && !PosixEnv().IsFile(path)) return false;
    auto text = ReadTextFile(PosixEnv(), path);
    EXPECT_TRUE(text.ok()) << text.status().message();
    folder.files[name] = text.ok() ? *text : "";
  }
  for (const auto& [name, content] : golden["config"].items()) folder.files[name] = content.dump();
  return true;
}

void ExpectCase(const Json& golden) {
  SCOPED_TRACE(golden["name"].get<std::string>());
  MemoryFolder folder;
  if (!Assemble(golden, folder)) return;
  const auto tokenizer = LoadTokenizer(folder, MemoryFolder::kPath);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  ExpectIds(golden, **tokenizer, /*is_short=*/false);
  const auto expect_id = [&](const char* role, std::optional<int32_t> id) {
    if (!golden.contains(role)) return;
    EXPECT_EQ(id, golden[role].is_null() ? std::nullopt : std::optional<int32_t>(golden[role].get<int32_t>())) << role;
  };
  expect_id("bos", (*tokenizer)->bos());
  expect_id("eos", (*tokenizer)->eos());
  expect_id("pad", (*tokenizer)->pad());
}

bool IsOutside(const Json& golden) {
  return golden["files"].dump().find("data:") != std::string::npos;
}

TEST(TokenizerGoldens, OwnTokenizersGiveTheIdsOfTransformersAndTokenizers) {
  int cases = 0;
  for (const Json& golden : Goldens()["cases"]) {
    if (IsOutside(golden)) continue;
    ExpectCase(golden);
    ++cases;
  }
  EXPECT_EQ(cases, 5);
}

// Texts of all kinds in one, with the tokenizer's special tokens; repeated with words between, where most can be cut.
std::string LongText(const Json& golden, bool is_short) {
  std::string text;
  for (const char* words : {" and so on ", "\n", "", "\xE4\xBB\x96\xEF\xBC\x8C", " x. Y"}) {
    for (const std::string& part : TextsFor(golden, is_short)) text += part + words;
  }
  return text;
}

// At `tries` places of the text, where the tokenizer finds a cut behind them. Returns how often that was.
int ExpectIdsOfCutTexts(const Tokenizer& tokenizer, const std::string& text, int tries) {
  std::vector<std::string> unknown_of_whole;
  const auto whole = tokenizer.Encode(text, {.add_special = false, .unknown = &unknown_of_whole});
  EXPECT_TRUE(whole.ok());
  int cuts = 0;
  size_t last = text.npos;
  for (int n = 0; n < tries; ++n) {
    const size_t at = tokenizer.FindCut(text, text.size() * static_cast<size_t>(n) / static_cast<size_t>(tries));
    if (at == text.npos) continue;
    ++cuts;
    if (std::exchange(last, at) == at) continue;
    std::vector<std::string> unknown;
    auto ids = *tokenizer.Encode(text.substr(0, at), {.add_special = false, .unknown = &unknown});
    const auto more = *tokenizer.Encode(std::string_view(text).substr(at),
                                        {.add_special = false, .continues = true, .unknown = &unknown});
    ids.insert(ids.end(), more.begin(), more.end());
    EXPECT_TRUE(ids == *whole) << "cut at byte " << at << ": '" << text.substr(at - std::min<size_t>(at, 20), 20)
                               << "' | '" << text.substr(at, 20) << "'";
    EXPECT_EQ(unknown, unknown_of_whole);
  }
  return cuts;
}

TEST(TokenizerGoldens, PublishedTokenizersGiveTheIdsOfTransformersAndTokenizers) {
  if (!std::getenv("TEMPER_TEST_DATA")) GTEST_SKIP() << "TEMPER_TEST_DATA is not set";
  int cases = 0;
  for (const Json& golden : Goldens()["cases"]) {
    MemoryFolder folder;
    if (!IsOutside(golden) || !Assemble(golden, folder)) continue;
    ExpectCase(golden);
    ++cases;
  }
  if (cases == 0) GTEST_SKIP() << "TEMPER_TEST_DATA has no tokenizers/";
}

// tests/tokenizer/make_auto_goldens.py: also the special tokens that tokenizer_config.json names or that the pipeline
// of tokenizer.json splits.
TEST(TokenizerGoldens, PublishedTokenizersGiveTheIdsOfAutoTokenizer) {
  if (!std::getenv("TEMPER_TEST_DATA")) GTEST_SKIP() << "TEMPER_TEST_DATA is not set";
  const auto goldens = ReadJsonFile(PosixEnv(), kFolder + "/auto_goldens.json");
  ASSERT_TRUE(goldens.ok()) << goldens.status().message();
  int cases = 0;
  for (const Json& golden : (*goldens)["cases"]) {
    SCOPED_TRACE(golden["name"].get<std::string>());
    MemoryFolder folder;
    if (!Assemble(golden, folder)) continue;
    ++cases;
    const auto tokenizer = LoadTokenizer(folder, MemoryFolder::kPath);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    EXPECT_EQ((*tokenizer)->eos(), golden["eos"].get<int32_t>());
    if (golden.contains("ids")) ExpectIds(golden, **tokenizer, /*is_short=*/true);
    if (!golden.contains("special")) continue;
    const std::vector<std::string> texts = TextsFor(golden, /*is_short=*/true);
    for (size_t i = 0; i < texts.size(); ++i) {
      std::vector<int32_t> ids = *(*tokenizer)->Encode(texts[i], {.add_special = false});
      std::erase_if(ids, [&](int32_t id) { return !(*tokenizer)->IsSpecial(id); });
      EXPECT_EQ(ids, golden["special"][i].get<std::vector<int32_t>>()) << "text " << i << ": '" << texts[i] << "'";
    }
  }
  if (cases == 0) GTEST_SKIP() << "TEMPER_TEST_DATA has no tokenizers/";
}

// A text in pieces has the ids of the whole, which are those of transformers and tokenizers (above).
TEST(TokenizerGoldens, PublishedTokenizersCutTextsWhereTheirIdsStayTheSame) {
  if (!std::getenv("TEMPER_TEST_DATA")) GTEST_SKIP() << "TEMPER_TEST_DATA is not set";
  int cases = 0;
  for (const Json& golden : Goldens()["cases"]) {
    SCOPED_TRACE(golden["name"].get<std::string>());
    MemoryFolder folder;
    if (!Assemble(golden, folder)) continue;
    const auto tokenizer = LoadTokenizer(folder, MemoryFolder::kPath);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    cases += IsOutside(golden);
    EXPECT_GT(ExpectIdsOfCutTexts(**tokenizer, LongText(golden, /*is_short=*/false), 50), 25);
  }
  if (cases == 0) GTEST_SKIP() << "TEMPER_TEST_DATA has no tokenizers/";
}

TEST(TokenizerGoldens, EveryStepOfTokenizerJsonGivesTheIdsAndTextsOfTokenizers) {
  int cut = 0;
  for (const Json& golden : Goldens()["variants"]) {
    SCOPED_TRACE(golden["name"].get<std::string>());
    auto json = ReadJsonFile(PosixEnv(), kFolder + "/" + golden["base"].get<std::string>() + "/tokenizer.json");
    ASSERT_TRUE(json.ok()) << json.status().message();
    for (const auto& [key, value] : golden["patch"].items()) {
      if (key == "model") {
        (*json)[key].merge_patch(value);
      } else {
        (*json)[key] = value;
      }
    }
    MemoryFolder folder;
    folder.files["tokenizer.json"] = json->dump();
    const auto tokenizer = LoadTokenizer(folder, MemoryFolder::kPath);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    ExpectIds(golden, **tokenizer, /*is_short=*/true);
    cut += ExpectIdsOfCutTexts(**tokenizer, LongText(golden, /*is_short=*/true), 10) > 0;
  }
  EXPECT_GE(Goldens()["variants"].size(), 50u);
  EXPECT_GE(cut, 25) << "tokenizers that cut";
}

}  // namespace
}  // namespace temper::golden_test
