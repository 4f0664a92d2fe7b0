#include "run/prompts.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/scratch_folder.h"

namespace temper::prompts_test {
namespace {

class Prompts : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) const {
    const std::string path = JoinPath(scratch_.path(), name);
    std::ofstream(path) << text;
    return path;
  }
  std::vector<Prompt> Read(const std::string& name, const std::string& text) const {
    auto prompts = ReadPrompts(PosixEnv(), Write(name, text));
    TEMPER_CHECK(prompts.ok()) << prompts.status().message();
    return std::move(*prompts);
  }
  std::string ErrorOf(const std::string& name, const std::string& text) const {
    return ReadPrompts(PosixEnv(), Write(name, text)).status().message();
  }

  const ScratchFolder scratch_;
};

TEST_F(Prompts, OfATextFileAreItsLines) {
  const auto prompts = Read("p.txt", "one\r\n\n  \n two\nthree");
  ASSERT_EQ(prompts.size(), 3u);
  EXPECT_EQ(prompts[0].text, "one");
  EXPECT_EQ(prompts[1].text, " two");
  EXPECT_EQ(prompts[2].text, "three");
  EXPECT_TRUE(prompts[1].where.ends_with("p.txt line 4")) << prompts[1].where;
}

TEST_F(Prompts, OfRowsNeedNoAnswer) {
  const auto prompts = Read("p.jsonl", R"({"prompt": "a"}
{"prompt": "b", "completion": "c", "system": "s"}
{"question": "d"}
{"instruction": "e", "input": "f"}
{"text": "g"})");
  ASSERT_EQ(prompts.size(), 5u);
  EXPECT_EQ(prompts[0].text, "a");
  EXPECT_EQ(prompts[1].text, "s\n\nb");
  EXPECT_EQ(prompts[1].turns.dump(), R"([{"role":"system","content":"s"},{"role":"user","content":"b"}])");
  EXPECT_EQ(prompts[2].text, "d");
  EXPECT_EQ(prompts[3].text, "e\n\nf");
  EXPECT_EQ(prompts[4].text, "g");
  EXPECT_EQ(AnsweredRow(prompts[0], "x\n"), R"({"prompt":"a","completion":"x\n"})");
}

TEST_F(Prompts, OfConversationsEndBeforeTheLastAnswer) {
  const auto prompts = Read("p.jsonl", R"({"messages": [{"role": "user", "content": "a"}]}
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]}
{"conversations": [{"from": "human", "value": "e"}, {"from": "gpt", "value": "f"}], "system": "s"}
{"prompt": [{"role": "user", "content": "g"}]})");
  ASSERT_EQ(prompts.size(), 4u);
  EXPECT_EQ(prompts[0].messages.dump(), R"([{"role":"user","content":"a"}])");
  EXPECT_EQ(prompts[1].messages.size(), 3u);
  EXPECT_EQ(prompts[2].messages.dump(), R"([{"role":"system","content":"s"},{"role":"user","content":"e"}])");
  EXPECT_EQ(prompts[3].messages.dump(), R"([{"role":"user","content":"g"}])");
  EXPECT_EQ(AnsweredRow(prompts[0], "z"),
            R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"z"}]})");
}

TEST_F(Prompts, KeepTheOtherFieldsOfTheirRows) {
  const auto prompts =
      Read("p.jsonl", R"({"id": 7, "prompt": "b", "system": "s", "chat_template_kwargs": {"enable_thinking": false}}
{"messages": [{"role": "user", "content": "a"}], "source": "x"})");
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(AnsweredRow(prompts[0], "z"),
            R"({"system":"s","prompt":"b","completion":"z","id":7,"chat_template_kwargs":{"enable_thinking":false}})");
  EXPECT_EQ(AnsweredRow(prompts[1], "z"),
            R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"z"}],"source":"x"})");
}

TEST_F(Prompts, OfATextFileHaveNoByteOrderMark) {
  EXPECT_EQ(Read("p.txt", "\xEF\xBB\xBFone\ntwo")[0].text, "one");
}

TEST_F(Prompts, ThatAreNoneAreErrorsWithTheirPlace) {
  EXPECT_TRUE(ErrorOf("p.txt", " \n").ends_with("p.txt has no prompts"));
  EXPECT_NE(
      ErrorOf("p.jsonl", "{\"text\": \"a\"}\n{\"input_ids\": [1]}").find("p.jsonl line 2: input_ids are no prompt"),
      std::string::npos);
  EXPECT_NE(ErrorOf("p.jsonl", R"({"messages": [{"role": "assistant", "content": "a"}]})").find("no message to answer"),
            std::string::npos);
  EXPECT_NE(ErrorOf("p.jsonl", R"({"x": 1})").find("line 1: unknown format"), std::string::npos);
}

}  // namespace
}  // namespace temper::prompts_test
