// Ids and texts of Unigram, WordPiece and tiktoken's models against those of tokenizers, sentencepiece and tiktoken,
// for 2,000 texts each (tests/tokenizer/make_model_goldens.py).
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/project_folder_for_test.h"
#include "data/tokenizer/load_tokenizer.h"
#include "data/tokenizer/memory_folder.h"
#include "data/tokenizer/stream_decoder.h"
#include "format/json.h"

namespace temper::token_model_golden_test {
namespace {

const std::string kFolder = std::string(kProjectFolder) + "/tests/tokenizer";

const Json& Goldens() {
  static const Json goldens = [] {
    auto json = ReadJsonFile(PosixEnv(), kFolder + "/model_goldens.json");
    EXPECT_TRUE(json.ok()) << json.status().message();
    return json.ok() ? *json : Json::object();
  }();
  return goldens;
}

// Half of FNV-1a.
std::string HashOf(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const unsigned char byte : text) hash = (hash ^ byte) * 0x100000001B3;
  return fmt::format("{:016x}", hash).substr(0, 8);
}

// False if a file is outside data that is missing.
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

// How often the ids, or the text of the ids, differ from the golden's; prints the first of each.
void ExpectIdsAndTexts(const Json& golden, const Tokenizer& tokenizer) {
  const std::string ids_wanted = golden["ids"], text_wanted = golden.value("text", "");
  const bool plain = golden.value("plain", false);
  const Json& texts = Goldens()["texts"];
  ASSERT_EQ(ids_wanted.size(), texts.size() * 8);
  size_t other_ids = 0, other_texts = 0, other_unknown = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto& text = texts[i].get_ref<const std::string&>();
    std::vector<std::string> unknown;
    const auto ids = tokenizer.Encode(text, {.parse_special = !plain, .unknown = &unknown});
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    if (HashOf(fmt::format("{}", fmt::join(*ids, " "))) != ids_wanted.substr(i * 8, 8) && other_ids++ < 5) {
      ADD_FAILURE() << "text " << i << " ('" << text << "') has the ids " << fmt::format("{}", fmt::join(*ids, " "));
    }
    const std::string back = tokenizer.Decode(*ids, /*skip_special=*/plain);
    if (!text_wanted.empty() && HashOf(back) != text_wanted.substr(i * 8, 8) && other_texts++ < 5) {
      ADD_FAILURE() << "text " << i << " ('" << text << "') comes back as '" << back << "'";
    }
    const auto of_unknown = tokenizer.unknown() ? std::count(ids->begin(), ids->end(), *tokenizer.unknown()) : 0;
    if (std::ssize(unknown) != of_unknown && other_unknown++ < 5) {
      ADD_FAILURE() << "text " << i << " ('" << text << "') has " << of_unknown << " unknown tokens, of which "
                    << unknown.size() << " are told";
    }
    if (i % 4 != 0) continue;  // which takes most of the time
    StreamDecoder stream(tokenizer, plain);
    std::string streamed;
    for (const int32_t id : *ids) streamed += stream.Push(id);
    EXPECT_EQ(streamed + stream.Finish(), back) << "text " << i;
  }
  EXPECT_EQ(other_ids, 0u);
  EXPECT_EQ(other_texts, 0u);
  EXPECT_EQ(other_unknown, 0u);
}

// Where a tokenizer cuts a text, the parts have the ids of the whole.
void ExpectCutsKeepIds(const Tokenizer& tokenizer) {
  std::string text;
  for (const Json& one : Goldens()["texts"]) text += one.get<std::string>() + " and so on\n";
  text.resize(text.size() / 4);
  while ((text.back() & 0xC0) == 0x80 || (text.back() & 0xC0) == 0xC0) text.pop_back();
  const auto whole = tokenizer.Encode(text, {.add_special = false});
  ASSERT_TRUE(whole.ok());
  for (int n = 0; n < 4; ++n) {
    const size_t at = tokenizer.FindCut(text, text.size() * static_cast<size_t>(n) / 4);
    if (at == text.npos) continue;
    auto ids = *tokenizer.Encode(text.substr(0, at), {.add_special = false});
    const auto more = *tokenizer.Encode(std::string_view(text).substr(at), {.add_special = false, .continues = true});
    ids.insert(ids.end(), more.begin(), more.end());
    EXPECT_TRUE(ids == *whole) << "cut at byte " << at;
  }
}

TEST(TokenModelGoldens, AllModelsGiveTheIdsAndTextsOfTheirLibraries) {
  size_t cases = 0;
  for (const Json& golden : Goldens()["cases"]) {
    SCOPED_TRACE(golden["name"].get<std::string>());
    MemoryFolder folder;
    if (!Assemble(golden, folder)) continue;
    const auto tokenizer = LoadTokenizer(folder, MemoryFolder::kPath);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    ExpectIdsAndTexts(golden, **tokenizer);
    ExpectCutsKeepIds(**tokenizer);
    ++cases;
  }
  EXPECT_GE(cases, 11u);
}

// The older form of merges is a text: "   " is two tokens of a space each. tokenizers refuses it.
TEST(TokenModelGoldens, MergesOfSpacesMayBeTextsInsteadOfLists) {
  for (const Json& golden : Goldens()["cases"]) {
    if (golden["name"] != "BPE over spaces") continue;
    MemoryFolder folder;
    ASSERT_TRUE(Assemble(golden, folder));
    Json json = *ParseJson(folder.files["tokenizer.json"], "tokenizer.json");
    int spaced = 0;
    for (Json& merge : json["model"]["merges"]) {
      const std::string text = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
      // "t  li" is "t " and "li", or "t" and " li".
      const bool has_spaces = std::count(text.begin(), text.end(), ' ') > 1;
      if (has_spaces && text.find_first_not_of(' ') != text.npos && text.find_last_not_of(' ') > text.find(' '))
        continue;
      merge = text;
      spaced += has_spaces ? 1 : 0;
    }
    EXPECT_GT(spaced, 10);
    json["model"]["merges"].push_back(",  and");
    folder.files["tokenizer.json"] = json.dump();
    const auto refused = LoadTokenizer(folder, MemoryFolder::kPath);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.status().message().find("as two tokens in 2 ways"), std::string::npos)
        << refused.status().message();
    json["model"]["merges"].erase(json["model"]["merges"].size() - 1);
    folder.files["tokenizer.json"] = json.dump();
    const auto tokenizer = LoadTokenizer(folder, MemoryFolder::kPath);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    ExpectIdsAndTexts(golden, **tokenizer);
    return;
  }
  FAIL() << "no such case";
}

}  // namespace
}  // namespace temper::token_model_golden_test
