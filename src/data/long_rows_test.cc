#include "data/long_rows.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/project_folder_for_test.h"
#include "data/fake_tokenizer.h"
#include "data/row_tokenizer.h"
#include "format/json.h"

namespace temper::long_rows_test {
namespace {

Json Goldens() {
  auto goldens = ReadJsonFile(PosixEnv(), std::string(kProjectFolder) + "/tests/data/recipe_goldens.json");
  EXPECT_TRUE(goldens.ok()) << goldens.status().message();
  return (*goldens)["long_rows"];
}

TEST(LongRows, TurnsAreCutInProportionAsByLlamaFactory) {
  const Json goldens = Goldens();
  ASSERT_GT(goldens.size(), 50u);
  int cut = 0;
  for (const Json& golden : goldens) {
    Sample sample;
    for (const Json& turn : golden["turns"]) {
      for (size_t part = 0; part < 2; ++part) {
        for (int64_t i = 0; i < turn[part].get<int64_t>(); ++i) {
          sample.tokens.push_back(static_cast<int32_t>(sample.tokens.size()));
          sample.supervised.push_back(part == 1);
          sample.weights.push_back(static_cast<TokenWeight>(sample.tokens.size()));
        }
      }
    }
    const size_t before = sample.tokens.size();
    CutInProportion(golden["room"], sample);
    cut += sample.tokens.size() < before;
    EXPECT_EQ(sample.tokens, golden["ids"].get<std::vector<int32_t>>()) << golden;
    EXPECT_EQ(sample.supervised, golden["counts"].get<std::vector<uint8_t>>()) << golden;
    ASSERT_EQ(sample.weights.size(), sample.tokens.size());
    for (size_t i = 0; i < sample.tokens.size(); ++i) {
      EXPECT_EQ(sample.weights[i], static_cast<TokenWeight>(sample.tokens[i] + 1)) << "a weight goes with its token";
    }
  }
  EXPECT_GT(cut, 20);
}

TEST(LongRows, AnAnswerOfLessThanHalfTheRoomStaysWhole) {
  EXPECT_EQ(KeptOfTurn({.prompt = 100, .answer = 7}, 16), (TurnLength{.prompt = 9, .answer = 7}));
  EXPECT_EQ(KeptOfTurn({.prompt = 7, .answer = 100}, 16), (TurnLength{.prompt = 7, .answer = 9}));
  EXPECT_EQ(KeptOfTurn({.prompt = 30, .answer = 10}, 16), (TurnLength{.prompt = 12, .answer = 4}));
  EXPECT_EQ(KeptOfTurn({.prompt = 3, .answer = 4}, 16), (TurnLength{.prompt = 3, .answer = 4})) << "what fits";
}

struct Outcome {
  Status status;
  std::vector<Sample> samples;
  DataStatistics statistics;
  std::string Text() const {
    std::string text;
    for (const Sample& sample : samples) text += FakeTokenizer().Decode(sample.tokens, false) + "|";
    return text;
  }
};

Outcome RunRow(const Record& record, LongRows long_rows, int64_t max_seq_len = 8, TokenizeOptions options = {}) {
  const FakeTokenizer tokenizer;
  options.max_seq_len = max_seq_len;
  options.long_rows = long_rows;
  const auto rows = RowTokenizer::Create(tokenizer, nullptr, options);
  Outcome out;
  out.status = (*rows)->Tokenize(record, out.samples, out.statistics);
  return out;
}

Record Prompt(const std::string& prompt, const std::string& completion) {
  Record record{.kind = RecordKind::kPrompt, .where = "d.jsonl line 3"};
  record.prompt = prompt;
  record.completion = completion;
  return record;
}

Record Text(const std::string& text) {
  Record record{.kind = RecordKind::kText, .where = "d.jsonl line 3"};
  record.text = text;
  return record;
}

TEST(LongRows, OfAPromptAreCutLeftOutOrRefused) {
  const Record record = Prompt("abcdefgh", "xy");
  EXPECT_EQ(RunRow(record, LongRows::kSplit).Text(), "") << "nothing of the answer is left";
  const Outcome cut = RunRow(record, LongRows::kProportional);
  EXPECT_EQ(cut.Text(), "<s>abcdxy</s>|");
  EXPECT_EQ(cut.statistics.cut_rows, 1);
  EXPECT_EQ(cut.statistics.cut_tokens, 4);
  EXPECT_EQ(cut.statistics.longest_row, 12);
  const Outcome dropped = RunRow(record, LongRows::kDrop);
  EXPECT_TRUE(dropped.samples.empty());
  EXPECT_EQ(dropped.statistics.left_out_rows, 1);
  EXPECT_EQ(dropped.statistics.dropped_rows + dropped.statistics.cut_rows, 0) << "each row is counted once";
  EXPECT_EQ(RunRow(record, LongRows::kError).status.message(), TooLong("d.jsonl line 3", 12, 8).message());
  for (const LongRows any : {LongRows::kCut, LongRows::kDrop, LongRows::kError, LongRows::kProportional}) {
    EXPECT_EQ(RunRow(record, any, 12).Text(), "<s>abcdefghxy</s>|") << "what fits stays";
  }
}

TEST(LongRows, OfATextAreSplitUnlessAnotherWayIsAskedFor) {
  const Record record = Text("abcdefghij");
  for (const LongRows splits : {LongRows::kSplit, LongRows::kProportional}) {
    EXPECT_EQ(RunRow(record, splits).Text(), "<s>abcdefg|ghij</s>|");
  }
  const Outcome cut = RunRow(record, LongRows::kCut);
  EXPECT_EQ(cut.Text(), "<s>abcdefg|");
  EXPECT_EQ(cut.statistics.cut_tokens, 4);
  EXPECT_EQ(cut.statistics.longest_row, 12);
  EXPECT_EQ(RunRow(record, LongRows::kDrop).statistics.left_out_rows, 1);
  EXPECT_EQ(RunRow(record, LongRows::kError).status.message(), TooLong("d.jsonl line 3", 12, 8).message());
  EXPECT_EQ(RunRow(record, LongRows::kCut, 12).Text(), "<s>abcdefghij</s>|");
}

TEST(LongRows, OfATextThatIsJudgedAreCutOrLeftOut) {
  const Record record = Text("abcdefghij");
  EXPECT_EQ(RunRow(record, LongRows::kCut, 8, {.use = RowUse::kSequences}).Text(), "<s>abcdefg|");
  EXPECT_EQ(RunRow(record, LongRows::kDrop, 8, {.use = RowUse::kSequences}).statistics.left_out_rows, 1);
  EXPECT_FALSE(RunRow(record, LongRows::kError, 8, {.use = RowUse::kSequences}).status.ok());
}

TEST(LongRows, OfAPairAreLeftOutAsAWhole) {
  Record pair{.kind = RecordKind::kPair, .where = "d.jsonl line 3"};
  pair.answers = {Prompt("ab", "xyz"), Prompt("ab", "u")};  // of 7 and 5 tokens
  EXPECT_EQ(RunRow(pair, LongRows::kDrop, 12).Text(), "<s>abxyz</s><s>abu</s>|");
  for (const int64_t room : {11, 6}) {
    const Outcome dropped = RunRow(pair, LongRows::kDrop, room);
    EXPECT_TRUE(dropped.samples.empty());
    EXPECT_EQ(dropped.statistics.left_out_rows, 1) << room;
    EXPECT_EQ(dropped.statistics.dropped_rows + dropped.statistics.cut_rows, 0) << room;
    EXPECT_FALSE(RunRow(pair, LongRows::kError, room).status.ok());
  }
  EXPECT_EQ(RunRow(pair, LongRows::kCut, 11).statistics.cut_rows, 1);
}

// The turns behind one whose prompt is cut are not looked for, but its own answer is.
TEST(LongRows, AnAnswerBehindAPromptThatIsTooLongIsFound) {
  const FakeTokenizer tokenizer;
  const auto chat = ChatTemplate::FromSource(
      "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}<|im_end|>{% endfor %}"
      "{% if add_generation_prompt %}a:{% endif %}",
      "test template", {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  Record record{.kind = RecordKind::kMessages, .where = "d.jsonl line 3"};
  const auto turn = [&](const char* role, const std::string& content) {
    record.messages.push_back({{"role", role}, {"content", content}});
  };
  record.messages = OrderedJson::array();
  turn("user", "q");
  turn("assistant", "r");
  turn("user", std::string(100, 'Q'));
  turn("assistant", "s");
  turn("user", std::string(100, 'Q'));
  turn("assistant", "t");
  const auto rows = RowTokenizer::Create(tokenizer, &*chat, {.max_seq_len = 32, .long_rows = LongRows::kProportional});
  Outcome out;
  out.status = (*rows)->Tokenize(record, out.samples, out.statistics);
  ASSERT_TRUE(out.status.ok()) << out.status.message();
  EXPECT_EQ(out.Text(), "u:q<|im_end|>a:r<|im_end|>u:" + std::string(20, 'Q') + "s<|im_end|>|");
  EXPECT_EQ(out.statistics.cut_rows, 1);
}

TEST(LongRows, TheErrorNamesTheRowAndTheRemedies) {
  const std::string message = TooLong("d.jsonl line 3", 20, 8).message();
  EXPECT_EQ(
      message,
      "d.jsonl line 3: the row has 20 tokens, and max_seq_len is 8: raise it, or let long rows be cut or left out "
      "(--long_rows drop, or cut where the task takes it)");
}

}  // namespace
}  // namespace temper::long_rows_test
