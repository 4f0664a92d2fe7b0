#include "data/printed_texts.h"

#include <gtest/gtest.h>

namespace temper::printed_texts_test {
namespace {

using Answer = PrintedTexts::Answer;

// The texts of a conversation whose template shows reasoning in the last turn only.
std::vector<RenderedChat> ThinkingChats(size_t turns, const std::string& filler) {
  std::vector<RenderedChat> chats(turns);
  std::string before;
  for (size_t i = 0; i < turns; ++i) {
    const std::string n = std::to_string(i);
    const std::string asked = "<user>question-" + n + filler + "<assistant>", said = "answer-" + n + filler + "<end>";
    chats[i].text = before + asked + "<think>thought-" + n + "</think>" + said;
    before += asked + said;
  }
  return chats;
}

TEST(PrintedTexts, WhatAnyOfTheTextsHasIsFound) {
  std::vector<RenderedChat> chats = ThinkingChats(3, "");
  chats.back().beyond = "<user>the rest";
  PrintedTexts printed(chats);
  for (const char* text :
       {"thought-2", "answer-0", "thought-0", "the rest", "question-1", "answer-0<end><user>question-1",
        "<assistant><think>thought-1", "question-2<assistant><think>", " short\n answer-1 \n", " \n"}) {
    EXPECT_EQ(printed.Has(text, "all"), Answer::kYes) << text;
    printed.NextMessage();
  }
  EXPECT_EQ(printed.Has("thought-3", "all"), Answer::kNo);
  EXPECT_EQ(printed.Has("restless", "all"), Answer::kNo);
}

TEST(PrintedTexts, ALineCountsAsInJsonToo) {
  std::vector<RenderedChat> chats(1);
  chats[0].text = R"([{"said": "a \"b\" c\\d"}, 'say "hi"'])";
  PrintedTexts printed(chats);
  for (const char* text : {"a \"b\" c\\d", "say \"hi\"", "a \"b\""}) {
    EXPECT_EQ(printed.Has(text, "all"), Answer::kYes) << text;
    EXPECT_TRUE(PrintedTexts::Shows(chats[0].text, text)) << text;
  }
  EXPECT_FALSE(PrintedTexts::Shows(chats[0].text, "a b"));
}

// The texts themselves grow with the square of the turns; nothing else may.
TEST(PrintedTexts, ALongConversationIsReadAFewTimesHoweverManyFieldsAreMissing) {
  const size_t turns = 300;
  const std::vector<RenderedChat> chats = ThinkingChats(turns, std::string(200, '.'));
  PrintedTexts printed(chats);
  EXPECT_LT(printed.size(), turns * 800) << "an answer is in two texts";
  size_t no = 0, not_searched = 0;
  for (size_t i = 0; i < turns; ++i) {
    const std::string n = std::to_string(i);
    for (const char* field : {"question-", "thought-", "answer-"}) {
      EXPECT_EQ(printed.Has(field + n, field), Answer::kYes) << field << n;
    }
    for (const char* field : {"id-", "timestamp-"}) {
      const Answer answer = printed.Has(field + n, field);
      no += answer == Answer::kNo;
      not_searched += answer == Answer::kNotSearched;
    }
    // Said only once, far from most of the messages.
    EXPECT_NE(printed.Has("question-299", "name"), Answer::kNo);
    printed.NextMessage();
  }
  EXPECT_GE(no, 2u);
  EXPECT_EQ(no + not_searched, 2 * turns);
  // Three kinds in their order, and three that are not, one reading too much for each.
  EXPECT_LT(printed.bytes_read(), (3 * 2 + 3 * (PrintedTexts::kMostReadings + 1)) * printed.size());
}

TEST(PrintedTexts, MessagesBehindOneThatMovedToTheEndAreFoundInTheirOrder) {
  std::vector<RenderedChat> chats(1);
  const size_t messages = 500;
  for (size_t i = 0; i < messages; ++i) chats[0].text += "<message " + std::to_string(i) + ">" + std::string(1000, '.');
  chats[0].text += "<moved>";
  PrintedTexts printed(chats);
  EXPECT_EQ(printed.Has("<moved>", "content"), Answer::kYes);
  printed.NextMessage();
  for (size_t i = 0; i < messages; ++i) {
    EXPECT_EQ(printed.Has("<message " + std::to_string(i) + ">", "content"), Answer::kYes) << i;
    printed.NextMessage();
  }
  EXPECT_LT(printed.bytes_read(), 3 * printed.size());
}

}  // namespace
}  // namespace temper::printed_texts_test
