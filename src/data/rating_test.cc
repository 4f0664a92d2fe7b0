#include "data/rating.h"

#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>

#include "base/scratch_folder.h"
#include "data/batch.h"
#include "data/dataset.h"
#include "data/fake_tokenizer.h"
#include "data/token_store.h"

namespace temper::rating_test {
namespace {

Result<Record> Read(const std::string& row) {
  const OrderedJson parsed = OrderedJson::parse(row);
  TEMPER_ASSIGN_OR_RETURN(const RecordFormat format, DetectRated(parsed, "here", ColumnMap({})));
  return MakeRated(parsed, format, "here");
}

TEST(Rating, IsTrueOrFalseBesideAnAnswer) {
  for (const auto& [row, good] : {std::pair{R"({"prompt": "a", "completion": "b", "label": true})", true},
                                  {R"({"prompt": "a", "completion": "b", "label": false})", false},
                                  {R"({"instruction": "a", "output": "b", "kto_tag": false})", false},
                                  {R"({"question": "a", "answer": "b", "label": "FALSE"})", false},
                                  {R"({"prompt": "a", "completion": "b", "label": true, "kto_tag": true})", true},
                                  {R"({"messages": [{"role": "user", "content": "a"},
                                      {"role": "assistant", "content": "b"}], "label": true})",
                                   true}}) {
    const auto record = Read(row);
    ASSERT_TRUE(record.ok()) << row << ": " << record.status().message();
    EXPECT_EQ(record->desirable, good) << row;
    EXPECT_TRUE(record->unread.empty()) << row;
  }
}

TEST(Rating, AnythingElseIsAnErrorWithItsRemedy) {
  for (const auto& [row, error] :
       {std::pair{R"({"prompt": "a", "completion": "b", "label": 1})", "'label' is 1, but a rating is true"},
        {R"({"prompt": "a", "completion": "b", "label": "good"})", "'label' is string"},
        {R"({"prompt": "a", "completion": "b"})", "no rating: task kto reads rows with label"},
        {R"({"prompt": "a", "chosen": "b", "rejected": "c"})", "pairs are read by --task dpo, simpo or orpo"},
        {R"({"text": "a", "label": true})", "a rating is that of an answer"},
        {R"({"prompt": "a", "completion": "b", "label": true, "kto_tag": false})", "say the opposite"},
        {R"({"prompt": "a", "completion": "b", "label": true, "weight": 2})", "'weight' has no meaning"}}) {
    const auto record = Read(row);
    ASSERT_FALSE(record.ok()) << row;
    EXPECT_NE(record.status().message().find(error), std::string::npos) << record.status().message();
  }
}

TEST(Rating, OfAConversationTheLastAnswerCounts) {
  const auto record = Read(R"({"label": true, "messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"},
      {"role": "assistant", "content": "d"}, {"role": "user", "content": "thanks"}]})");
  ASSERT_TRUE(record.ok()) << record.status().message();
  ASSERT_EQ(record->messages.size(), 4u) << "what follows the last answer is not read";
  EXPECT_EQ(record->messages[1]["weight"], 0);
  EXPECT_FALSE(record->messages[3].contains("weight") && record->messages[3]["weight"] == 0);
}

// Rows as a data set, and each prompt with the answer before it.
TEST(Rating, MismatchedAnswersAreThoseOfTheRowBefore) {
  const ScratchFolder folder;
  const std::string path = folder / "rated.jsonl";
  ASSERT_TRUE(WriteTextFileAtomically(PosixEnv(), path,
                                      R"({"prompt": "ab", "completion": "cd", "label": true})"
                                      "\n"
                                      R"({"prompt": "e", "completion": "fgh", "label": false})"
                                      "\n"
                                      R"({"prompt": "ij", "completion": "k", "label": true})"
                                      "\n")
                  .ok());
  static const FakeTokenizer tokenizer;
  DatasetOptions options;
  options.tokenize.use = RowUse::kRated;
  DataInput input{.path = path};
  input.use = RowUse::kRated;
  const auto data = LoadDataset(PosixEnv(), {input}, tokenizer, nullptr, options);
  ASSERT_TRUE(data.ok()) << data.status().message();
  const TokenStore& store = data->store;
  EXPECT_EQ(store.values(0).desirable, 1);
  EXPECT_EQ(store.values(1).desirable, 0);
  const std::array<int32_t, 2> first = {0, 2};
  const std::array<int32_t, 1> second = {1};
  const std::array<std::span<const int32_t>, 2> lists = {first, second};
  const TokenStore mismatched = TokenStore::Mismatched(store, lists, 64);
  const auto halves = [&](int64_t id) {
    const TokenSample sample = store.sample(id);
    std::pair<std::vector<int32_t>, std::vector<int32_t>> out;
    for (int64_t i = 0; i < sample.length(); ++i) {
      (sample.supervised(i) ? out.second : out.first).push_back(sample.token(i));
    }
    return out;
  };
  for (const auto& [id, with] : {std::pair{0, 2}, {2, 0}, {1, 1}}) {
    std::vector<int32_t> want = halves(id).first;
    const size_t prompt = want.size();
    const std::vector<int32_t> answer = halves(with).second;
    want.insert(want.end(), answer.begin(), answer.end());
    const TokenSample got = mismatched.sample(id);
    EXPECT_EQ(got.tokens(), want) << id;
    EXPECT_EQ(mismatched.length(id), got.length());
    for (int64_t i = 0; i < got.length(); ++i) EXPECT_EQ(got.supervised(i), i >= static_cast<int64_t>(prompt));
  }
  EXPECT_EQ(TokenStore::Mismatched(store, lists, 4).length(0), 4) << "cut as any sample";
  // In rows of their own order: one that does not fit begins the next row, and what has no room is left.
  std::vector<int32_t> token(16, -7), start(16, -7);
  const std::array<ColumnArray, 2> columns = {{{FillerOf("token"), std::as_writable_bytes(std::span(token))},
                                               {FillerOf("document_start"), std::as_writable_bytes(std::span(start))}}};
  std::vector<int64_t> places;
  const std::vector<int32_t> all = mismatched.AllSamples();
  const int64_t placed = FillInOrder(mismatched, all, 8, 16, columns, &places);
  ASSERT_GE(placed, 2);
  for (int64_t i = 0; i < placed; ++i) {
    const int64_t at = places[static_cast<size_t>(i)], length = mismatched.length(all[static_cast<size_t>(i)]);
    EXPECT_LE(at % 8 + length, 8);
    EXPECT_EQ(token[static_cast<size_t>(at)], mismatched.sample(all[static_cast<size_t>(i)]).token(0));
    EXPECT_EQ(start[static_cast<size_t>(at + length - 1)], at);
  }
}

}  // namespace
}  // namespace temper::rating_test
