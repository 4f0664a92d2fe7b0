#include "data/pair.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace temper::pair_test {
namespace {

OrderedJson Parse(const char* text) {
  return OrderedJson::parse(text);
}

void ExpectPair(const char* row, RecordFormat format, const char* chosen, const char* rejected) {
  SCOPED_TRACE(row);
  ASSERT_TRUE(HasPair(Parse(row)));
  const auto pair = SplitPair(Parse(row), "here");
  ASSERT_TRUE(pair.ok()) << pair.status().message();
  EXPECT_EQ(pair->format, format);
  EXPECT_EQ(Json(pair->chosen), Json(Parse(chosen)));
  EXPECT_EQ(Json(pair->rejected), Json(Parse(rejected)));
}

// What TRL's extract_prompt and maybe_extract_prompt make of them.
TEST(Pair, ReadsTheFormatsOfTrl) {
  ExpectPair(R"({"prompt": "The sky is", "chosen": " blue.", "rejected": " green."})", RecordFormat::kPromptCompletion,
             R"({"prompt": "The sky is", "completion": " blue."})",
             R"({"prompt": "The sky is", "completion": " green."})");
  ExpectPair(R"({"chosen": "The sky is blue.", "rejected": "The sky is green."})", RecordFormat::kPromptCompletion,
             R"({"prompt": "The sky is", "completion": " blue."})",
             R"({"prompt": "The sky is", "completion": " green."})");
  ExpectPair(
      R"({"prompt": [{"role": "user", "content": "Sky?"}], "chosen": [{"role": "assistant", "content": "Blue"}],
                 "rejected": [{"role": "assistant", "content": "Green"}]})",
      RecordFormat::kPromptCompletion,
      R"({"prompt": [{"role": "user", "content": "Sky?"}], "completion": [{"role": "assistant", "content": "Blue"}]})",
      R"({"prompt": [{"role": "user", "content": "Sky?"}],
                 "completion": [{"role": "assistant", "content": "Green"}]})");
  // The prompt is that of the messages, also where a text of it stands beside them (UltraFeedback).
  for (const char* prompt : {"", R"("prompt": "Sky?", )"}) {
    const std::string row = std::string("{") + prompt + R"("chosen": [{"role": "user", "content": "Sky?"},
        {"role": "assistant", "content": "Blue"}], "rejected": [{"role": "user", "content": "Sky?"},
        {"role": "assistant", "content": "Green"}]})";
    ExpectPair(row.c_str(), RecordFormat::kPromptCompletion,
               R"({"prompt": [{"role": "user", "content": "Sky?"}],
                   "completion": [{"role": "assistant", "content": "Blue"}]})",
               R"({"prompt": [{"role": "user", "content": "Sky?"}],
                   "completion": [{"role": "assistant", "content": "Green"}]})");
  }
}

TEST(Pair, ReadsTheFormatsOfOtherTools) {
  ExpectPair(R"({"instruction": "Say", "input": "it", "chosen": "a", "rejected": "b"})", RecordFormat::kInstruction,
             R"({"instruction": "Say", "input": "it", "output": "a"})",
             R"({"instruction": "Say", "input": "it", "output": "b"})");
  ExpectPair(R"({"system": "S", "question": "Q", "chosen": "a", "rejected": "b"})", RecordFormat::kQuestionAnswer,
             R"({"system": "S", "question": "Q", "answer": "a"})",
             R"({"system": "S", "question": "Q", "answer": "b"})");
  ExpectPair(
      R"({"conversations": [{"from": "human", "value": "Q"}], "chosen": {"from": "gpt", "value": "a"},
                 "rejected": {"from": "gpt", "value": "b"}})",
      RecordFormat::kPromptCompletion,
      R"({"prompt": [{"role": "user", "content": "Q"}], "completion": [{"role": "assistant", "content": "a"}]})",
      R"({"prompt": [{"role": "user", "content": "Q"}], "completion": [{"role": "assistant", "content": "b"}]})");
  ExpectPair(
      R"({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "a"}],
                 "rejected_response": "b"})",
      RecordFormat::kPromptCompletion,
      R"({"prompt": [{"role": "user", "content": "Q"}], "completion": [{"role": "assistant", "content": "a"}]})",
      R"({"prompt": [{"role": "user", "content": "Q"}], "completion": [{"role": "assistant", "content": "b"}]})");
}

// TRL would train such rows without their prompt.
TEST(Pair, KeepsAPromptOfTheOtherKind) {
  ExpectPair(
      R"({"prompt": "Sky?", "chosen": [{"role": "assistant", "content": "Blue"}],
                 "rejected": [{"role": "assistant", "content": "Green"}]})",
      RecordFormat::kPromptCompletion,
      R"({"prompt": [{"role": "user", "content": "Sky?"}], "completion": [{"role": "assistant", "content": "Blue"}]})",
      R"({"prompt": [{"role": "user", "content": "Sky?"}],
                 "completion": [{"role": "assistant", "content": "Green"}]})");
  ExpectPair(
      R"({"prompt": [{"role": "user", "content": "Sky?"}], "chosen": "Blue", "rejected": "Green"})",
      RecordFormat::kPromptCompletion,
      R"({"prompt": [{"role": "user", "content": "Sky?"}], "completion": [{"role": "assistant", "content": "Blue"}]})",
      R"({"prompt": [{"role": "user", "content": "Sky?"}],
                 "completion": [{"role": "assistant", "content": "Green"}]})");
  ExpectPair(
      R"({"messages": [{"role": "user", "content": "Sky?"}], "chosen": [{"role": "assistant", "content": "Blue"}],
                 "rejected": [{"role": "assistant", "content": "Green"}]})",
      RecordFormat::kPromptCompletion,
      R"({"prompt": [{"role": "user", "content": "Sky?"}], "completion": [{"role": "assistant", "content": "Blue"}]})",
      R"({"prompt": [{"role": "user", "content": "Sky?"}],
                 "completion": [{"role": "assistant", "content": "Green"}]})");
  const auto other = SplitPair(Parse(R"({"prompt": "Another text", "chosen": [{"role": "user", "content": "Sky?"},
        {"role": "assistant", "content": "Blue"}], "rejected": [{"role": "user", "content": "Sky?"},
        {"role": "assistant", "content": "Green"}]})"),
                               "here");
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other->unread, std::vector<std::string>{"prompt"});
}

TEST(Pair, CutsNoCharacter) {
  // "é" and "è" share their first byte.
  ExpectPair("{\"chosen\": \"caf\u00e9\", \"rejected\": \"caf\u00e8\"}", RecordFormat::kPromptCompletion,
             "{\"prompt\": \"caf\", \"completion\": \"\u00e9\"}", "{\"prompt\": \"caf\", \"completion\": \"\u00e8\"}");
}

TEST(Pair, NamesWhatIsWrong) {
  const auto refused = [](const char* row) {
    const auto pair = SplitPair(Parse(row), "here");
    return pair.ok() ? "" : pair.status().message();
  };
  EXPECT_EQ(refused(R"({"chosen": "a", "rejected": null})"),
            "here: 'rejected' is null; a pair needs a chosen and a rejected answer");
  EXPECT_EQ(refused(R"({"chosen": "a", "rejected": [{"role": "assistant", "content": "b"}]})"),
            "here: 'chosen' is string and 'rejected' is array: both should be texts, lists of messages, or one message "
            "each");
  EXPECT_EQ(refused(R"({"chosen": {"role": "assistant"}, "rejected": {"role": "assistant"}})"),
            "here: 'chosen' and 'rejected' are messages, but the row has no 'messages' that they answer");
  EXPECT_FALSE(HasPair(Parse(R"({"chosen": "a"})")));
}

}  // namespace
}  // namespace temper::pair_test
