#include "data/template/word_start.h"

#include <gtest/gtest.h>

namespace temper::word_start_test {
namespace {

// The text from the start of what the bar is inside of.
std::string From(const std::string& with_bar) {
  const size_t at = with_bar.find('|');
  std::string text = with_bar;
  text.erase(at, 1);
  return text.substr(WordStart(text, at));
}

TEST(WordStart, IsWhereTheMarkerOrWordBegins) {
  EXPECT_EQ(From("<assistant><|think>Easy"), "<think>Easy");
  EXPECT_EQ(From("[/INST][TOOL_|CALLS] x"), "[TOOL_CALLS] x");
  EXPECT_EQ(From("so Rea|soning: x"), "Reasoning: x");
  EXPECT_EQ(From("\n\xE4|\xBD\xA0"), "\xE4\xBD\xA0") << "not within a character";
}

TEST(WordStart, IsThePlaceItselfBetweenMarkersAndWords) {
  EXPECT_EQ(From("<assistant>|Easy"), "Easy");
  EXPECT_EQ(From("assistant|<think>"), "<think>");
  EXPECT_EQ(From("Here:\n|Easy"), "Easy");
  EXPECT_EQ(From("Easy|"), "");
  EXPECT_EQ(From("|Easy"), "Easy");
  EXPECT_EQ(From("1 < |2 and 3 > 2"), "2 and 3 > 2") << "no marker has spaces";
  EXPECT_EQ(From("a <b |c"), "c") << "nor lacks its end";
}

// A header that ends in a wide colon is not part of the turn behind it, nor are Chinese words before a character.
TEST(WordStart, TextWithoutSpacesHasWordsOfOneCharacter) {
  EXPECT_EQ(From("助手：|你好"), "你好");
  EXPECT_EQ(From("助手|你好"), "你好");
  EXPECT_EQ(From("помощ|ник: да"), "помощник: да");
  EXPECT_EQ(From("a “|b"), "b");
}

TEST(WordStart, TextsShareWholeWords) {
  EXPECT_EQ(CommonWords("<a><think>x", "<a></think>x"), 3u);
  EXPECT_EQ(CommonWords("<a>Here", "<a>Hello"), 3u);
  EXPECT_EQ(CommonWords("<a>x", "<a>x<b>"), 4u);
  EXPECT_EQ(CommonWords("<a>x", "<a>xy"), 3u) << "the second has another word";
}

TEST(WordStart, LooksNotFarBack) {
  const std::string word(10000, 'a');
  EXPECT_GT(WordStart(word, 9000), 8000u);
  EXPECT_EQ(WordStart("<" + std::string(100, '.') + ">", 90), 90u);
}

}  // namespace
}  // namespace temper::word_start_test
