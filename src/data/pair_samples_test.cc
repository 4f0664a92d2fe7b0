// RowTokenizer on pairs of answers.
#include <gtest/gtest.h>

#include "data/fake_tokenizer.h"
#include "data/row_tokenizer.h"

namespace temper::pair_samples_test {
namespace {

Record Answer(std::string prompt, std::string completion) {
  Record r{.kind = RecordKind::kPrompt, .where = "f line 1"};
  r.prompt = std::move(prompt);
  r.completion = std::move(completion);
  return r;
}

struct Outcome {
  Status status;
  std::vector<Sample> samples;
  DataStatistics statistics;
};

Outcome TokenizePair(const std::string& prompt, const std::string& chosen, const std::string& rejected,
                     int64_t max_seq_len = 100) {
  const FakeTokenizer tokenizer;
  Record pair{.kind = RecordKind::kPair, .where = "f line 1"};
  pair.answers = {Answer(prompt, chosen), Answer(prompt, rejected)};
  Outcome out;
  const auto rows = RowTokenizer::Create(tokenizer, nullptr, {.max_seq_len = max_seq_len});
  out.status = rows.status();
  if (rows.ok()) out.status = (*rows)->Tokenize(pair, out.samples, out.statistics);
  return out;
}

// The tokens of each answer, alone.
Sample Alone(const std::string& prompt, const std::string& completion) {
  const FakeTokenizer tokenizer;
  std::vector<Sample> samples;
  DataStatistics statistics;
  const auto rows = RowTokenizer::Create(tokenizer, nullptr, {});
  EXPECT_TRUE((*rows)->Tokenize(Answer(prompt, completion), samples, statistics).ok());
  return samples.at(0);
}

TEST(PairSamples, AreTheTwoAnswersOneBehindTheOther) {
  const Outcome out = TokenizePair("ab", "cde", "fg");
  ASSERT_TRUE(out.status.ok()) << out.status.message();
  ASSERT_EQ(out.samples.size(), 1u);
  const Sample &pair = out.samples[0], chosen = Alone("ab", "cde"), rejected = Alone("ab", "fg");
  const size_t first = chosen.tokens.size(), second = rejected.tokens.size();
  EXPECT_EQ(pair.parts, std::vector<size_t>{first});
  ASSERT_EQ(pair.tokens.size(), first + second);
  EXPECT_TRUE(std::equal(chosen.tokens.begin(), chosen.tokens.end(), pair.tokens.begin()));
  EXPECT_TRUE(std::equal(rejected.tokens.begin(), rejected.tokens.end(), pair.tokens.begin() + first));
  EXPECT_TRUE(std::equal(rejected.supervised.begin(), rejected.supervised.end(), pair.supervised.begin() + first));
  EXPECT_EQ(pair.supervised[first], 0);
  EXPECT_EQ(out.statistics.samples, 1);
  EXPECT_EQ(out.statistics.tokens, static_cast<int64_t>(first + second));
  EXPECT_EQ(out.statistics.supervised, std::count(pair.supervised.begin(), pair.supervised.end(), 1));
}

// What does not fit in a row is cut: the longer answer to what the other leaves, or both to half of the row.
TEST(PairSamples, ShareARow) {
  const std::string longer(40, 'x');
  const size_t short_length = Alone("ab", "c").tokens.size();
  const Outcome one_long = TokenizePair("ab", longer, "c", 32);
  ASSERT_EQ(one_long.samples.size(), 1u);
  EXPECT_EQ(one_long.samples[0].tokens.size(), 32u);
  EXPECT_EQ(one_long.samples[0].parts, std::vector<size_t>{32 - short_length});
  EXPECT_EQ(one_long.statistics.cut_rows, 1);
  EXPECT_EQ(one_long.statistics.longest_row, static_cast<int64_t>(Alone("ab", longer).tokens.size() + short_length));
  EXPECT_EQ(one_long.statistics.cut_tokens, one_long.statistics.longest_row - 32);
  const Outcome both = TokenizePair("ab", longer, longer + "y", 32);
  ASSERT_EQ(both.samples.size(), 0u) << "cut at 16 tokens they are equal";
  EXPECT_EQ(both.statistics.dropped_rows, 1);
  const Outcome differ = TokenizePair("ab", "p" + longer, "q" + longer, 32);
  ASSERT_EQ(differ.samples.size(), 1u);
  EXPECT_EQ(differ.samples[0].parts, std::vector<size_t>{16});
  EXPECT_EQ(differ.samples[0].tokens.size(), 32u);
}

TEST(PairSamples, OfEqualOrEmptyAnswersTeachNothing) {
  for (const auto& [chosen, rejected] : {std::pair{"same", "same"}, {"", "b"}, {"a", " "}}) {
    const Outcome out = TokenizePair("ab", chosen, rejected);
    ASSERT_TRUE(out.status.ok()) << out.status.message();
    EXPECT_TRUE(out.samples.empty());
    EXPECT_EQ(out.statistics.dropped_rows, 1);
    EXPECT_EQ(out.statistics.samples, 0);
  }
}

}  // namespace
}  // namespace temper::pair_samples_test
