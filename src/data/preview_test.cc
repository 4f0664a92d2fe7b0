#include "data/preview.h"

#include <gtest/gtest.h>

#include "data/fake_tokenizer.h"
#include "data/token_memory.h"

namespace temper::preview_test {
namespace {

TokenStore StoreOf(const std::vector<std::pair<std::string, std::string>>& rows) {
  MemoryTokens made;
  const FakeTokenizer tokenizer;
  for (const auto& [masked, supervised] : rows) {
    auto tokens = *tokenizer.Encode(masked);
    std::vector<uint8_t> flags(tokens.size(), 0);
    const auto tail = tokenizer.Encode(supervised, {.add_special = false});
    for (const int32_t id : *tail) {
      tokens.push_back(id);
      flags.push_back(1);
    }
    made.Add(tokens, flags);
  }
  return made.Store();
}

TEST(Preview, PlainTextMarksSupervisedTokens) {
  const TokenStore store = StoreOf({{"Why? ", "So.</s>"}});
  EXPECT_EQ(PreviewSample(store, 0, FakeTokenizer(), {}),
            "--- sample 0: 10 tokens, 4 supervised ---\n<s>Why? [[So.</s>]]\n");
}

TEST(Preview, WeightsFollowTheirText) {
  MemoryTokens made;
  const FakeTokenizer tokenizer;
  const auto tokens = *tokenizer.Encode("abcd", {.add_special = false});
  made.Add(tokens, std::vector<uint8_t>{0, 1, 1, 1},
           std::vector<TokenWeight>{1, kUnitWeight / 2, kUnitWeight / 2, kUnitWeight});
  const TokenStore store = made.Store();
  EXPECT_EQ(PreviewSample(store, 0, tokenizer, {}), "--- sample 0: 4 tokens, 3 supervised ---\na[[bc]]{0.5}[[d]]\n");
}

TEST(Preview, JsonHasIdsLabelsAndSupervisedSpans) {
  MemoryTokens made;
  const FakeTokenizer tokenizer;
  made.Add(*tokenizer.Encode("ab\"d", {.add_special = false}), std::vector<uint8_t>{0, 1, 0, 1});
  made.Add(*tokenizer.Encode("ab", {.add_special = false}), std::vector<uint8_t>{0, 1},
           std::vector<TokenWeight>{0, kUnitWeight / 4});
  const TokenStore store = made.Store();
  EXPECT_EQ(SampleAsJson(store, 0, "f line 1", tokenizer),
            R"({"place":"f line 1","input_ids":[97,98,34,100],"labels":[-100,98,-100,100],)"
            R"("spans":[{"begin":1,"end":2,"text":"b"},{"begin":3,"end":4,"text":"d"}]})");
  EXPECT_EQ(SampleAsJson(store, 1, "f line 2", tokenizer),
            R"({"place":"f line 2","input_ids":[97,98],"labels":[-100,98],"weights":[0.0,0.25],)"
            R"("spans":[{"begin":1,"end":2,"text":"b"}]})");
}

TEST(Preview, ColourIsGreenForSupervisedAndDimForMasked) {
  const TokenStore store = StoreOf({{"a", "b"}});
  EXPECT_EQ(PreviewSample(store, 0, FakeTokenizer(), {.colour = true}),
            "--- sample 0: 3 tokens, 1 supervised ---\n\x1b[2m<s>a\x1b[0m\x1b[32mb\x1b[0m\n");
}

TEST(Preview, RowsShowTheirSamplesAndHowFullTheyAre) {
  const TokenStore store = StoreOf({{"a", "b"}, {"c", "d"}});
  const std::vector<int32_t> row = {1, 0};
  EXPECT_EQ(PreviewRow(store, row, 8, FakeTokenizer(), {}),
            "=== row of 2 samples: 6 of 8 tokens (75.0 %), 2 supervised ===\n"
            "--- sample 1: 3 tokens, 1 supervised ---\n<s>c[[d]]\n"
            "--- sample 0: 3 tokens, 1 supervised ---\n<s>a[[b]]\n");
}

TEST(Preview, DataCannotDriveTheTerminal) {
  const TokenStore store = StoreOf({{"a", "\x1b]0;title\x07\x7f\xC2\x9B\r\nb\tc\xC3\xA9"}});
  const std::string text = PreviewSample(store, 0, FakeTokenizer(), {});
  EXPECT_NE(text.find("[[\\x1b]0;title\\x07\\x7f\\x9b\\x0d\nb\tc\xC3\xA9]]"), std::string::npos) << text;
}

TEST(Preview, TokensHaveALineEachWithTheirIdAndText) {
  MemoryTokens made;
  const FakeTokenizer tokenizer({"So"});
  const auto tokens = *tokenizer.Encode("\"\n\xC3\xA9So.</s>");
  made.Add(tokens, std::vector<uint8_t>{0, 0, 0, 0, 0, 1, 1, 1},
           std::vector<TokenWeight>{0, 0, 0, 0, 0, kUnitWeight, kUnitWeight / 2, kUnitWeight});
  const TokenStore store = made.Store();
  EXPECT_EQ(PreviewSample(store, 0, tokenizer, {.tokens = true}),
            "--- sample 0: 8 tokens, 3 supervised ---\n"
            "     0     256  \"<s>\"\n"
            "     1      34  \"\\\"\"\n"
            "     2      10  \"\\n\"\n"
            "     3     195  \\xc3\n"
            "     4     169  \"\xC3\xA9\"\n"
            "     5     260  [[\"So\"]]\n"
            "     6      46  [[\".\"]]{0.5}\n"
            "     7     257  [[\"</s>\"]]\n");
  const std::string cut = PreviewSample(store, 0, tokenizer, {.colour = true, .tokens = true, .max_tokens = 6});
  EXPECT_TRUE(cut.ends_with("     5     260  \x1b[32m\"So\"\x1b[0m\n... 2 more tokens\n")) << cut;
}

TEST(Preview, AnUnknownTokenIsShownWithTheTextThatItStandsFor) {
  FakeTokenizer tokenizer;
  tokenizer.Forget("+\n");
  MemoryTokens made;
  const std::vector<uint8_t> supervised = {0, 1, 1, 1, 1, 0};
  made.Add(*tokenizer.Encode("a+?\n+"), supervised).Add(*tokenizer.Encode("a+?\n+"), supervised);
  const TokenStore store = made.Store();
  const std::map<int64_t, std::vector<std::string>> unknown = {{1, {"+", "", "\n"}}};
  EXPECT_EQ(PreviewSample(store, 1, tokenizer, {.tokens = true, .unknown = &unknown}),
            "--- sample 1: 6 tokens, 4 supervised ---\n"
            "     0     256  \"<s>\"\n"
            "     1      97  [[\"a\"]]\n"
            "     2      63  [[? for \"+\"]]\n"
            "     3      63  [[\"?\"]]\n"
            "     4      63  [[? for \"\\n\"]]\n"
            "     5      63  \"?\"\n")
      << "the text spells the token, or its text is not known";
  EXPECT_EQ(PreviewSample(store, 0, tokenizer, {.tokens = true, .unknown = &unknown}).find(" for "), std::string::npos);
}

TEST(Preview, LongSamplesAreShortenedAndSaySo) {
  const TokenStore store = StoreOf({{"a", std::string(100, 'b')}});
  const std::string text = PreviewSample(store, 0, FakeTokenizer(), {.max_tokens = 12});
  EXPECT_NE(text.find("<s>a[[bbbbbbbbbb]]\n... 90 more tokens\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace temper::preview_test
