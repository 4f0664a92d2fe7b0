#include "data/label.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/scratch_folder.h"
#include "data/fake_tokenizer.h"
#include "data/label_search.h"

namespace temper::label_test {
namespace {

DataInput Rows(const std::string& text) {
  static const ScratchFolder folder;
  static int files = 0;
  const std::string path = folder / (std::to_string(files++) + ".jsonl");
  EXPECT_TRUE(WriteTextFileAtomically(PosixEnv(), path, text).ok());
  DataInput input{.path = path};
  input.use = RowUse::kLabels;
  return input;
}

Result<Dataset> Load(const DataInput& input, const ClassNames& classes, std::optional<int32_t> pad = {},
                     int64_t max_seq_len = 64) {
  static const FakeTokenizer tokenizer;
  DatasetOptions options;
  options.tokenize.max_seq_len = max_seq_len;
  options.tokenize.use = RowUse::kLabels;
  options.tokenize.classes = &classes;
  options.tokenize.pad = pad;
  return LoadDataset(PosixEnv(), {input}, tokenizer, nullptr, options);
}

TEST(Label, IsATextOrAWholeNumber) {
  for (const auto& [row, label] : {std::pair{R"({"text": "a", "label": "x y"})", "x y"},
                                   {R"({"text": "a", "label": 3})", "3"},
                                   {R"({"text": "a", "label": -2.0})", "-2"},
                                   {R"({"sentence": "a", "labels": 3})", "3"},
                                   {R"({"input_ids": [1, 2], "labels": [-100, 2], "label": "x"})", "x"},
                                   {R"({"messages": [{"role": "user", "content": "a"}], "label": "x"})", "x"}}) {
    SCOPED_TRACE(row);
    const OrderedJson parsed = OrderedJson::parse(row);
    const auto format = DetectSequence(parsed, RowUse::kLabels, "here", ColumnMap({}));
    ASSERT_TRUE(format.ok()) << format.status().message();
    const auto record = MakeSequence(parsed, *format, RowUse::kLabels, "here");
    ASSERT_TRUE(record.ok()) << record.status().message();
    EXPECT_EQ(record->label, label);
    EXPECT_TRUE(record->unread.empty());
  }
  for (const char* row : {R"({"text": "a", "label": true})", R"({"text": "a", "label": 0.5})",
                          R"({"text": "a", "label": [1]})", R"({"text": "a", "label": null})", R"({"text": "a"})",
                          R"({"prompt": "a", "completion": "b", "label": 1})", R"({"label": 1})"}) {
    EXPECT_FALSE(DetectSequence(OrderedJson::parse(row), RowUse::kLabels, "here", ColumnMap({})).ok()) << row;
  }
  EXPECT_TRUE(DetectSequence(OrderedJson::parse(R"({"text": "a"})"), RowUse::kSequences, "here", ColumnMap({})).ok());
}

TEST(Label, ClassesAreThoseOfAllRows) {
  const DataInput rows = Rows(
      "{\"text\": \"a\", \"label\": \"b\"}\n{\"text\": 1, \"label\": \"bad\"}\n"
      "{\"text\": \"a\", \"label\": \"a\"}\n{\"text\": \"a\", \"label\": \"b\"}\n");
  EXPECT_EQ(FindClasses(PosixEnv(), std::vector{rows}).value().names, (std::vector<std::string>{"a", "b"}));
  DataInput first = rows;
  first.max_rows = 1;
  const auto one = FindClasses(PosixEnv(), std::vector{first});
  ASSERT_FALSE(one.ok());
  EXPECT_NE(one.status().message().find("all rows have the label 'b'"), std::string::npos) << one.status().message();
}

// The text as the tokenizer encodes it by itself, its class, and no token to predict.
TEST(Label, ASampleHasItsClassBesideItsTokens) {
  const DataInput rows = Rows("{\"text\": \"ab\", \"label\": \"y\"}\n{\"text\": \"abcdef\", \"label\": \"x\"}\n");
  const ClassNames classes{{"x", "y"}};
  const auto data = Load(rows, classes, /*pad=*/{}, /*max_seq_len=*/4);
  ASSERT_TRUE(data.ok()) << data.status().message();
  ASSERT_EQ(data->store.size(), 2);
  EXPECT_EQ(data->store.values(0).label, 1);
  EXPECT_EQ(data->store.values(1).label, 0);
  EXPECT_EQ(data->store.sample(0).tokens(), FakeTokenizer().Encode("ab").value());
  EXPECT_EQ(data->store.length(1), 4);
  EXPECT_EQ(data->statistics.cut_rows, 1);
  EXPECT_EQ(data->statistics.supervised, 2) << "labels";
  EXPECT_EQ(data->store.total_supervised(), 0);
}

TEST(Label, ASequenceDoesNotEndWithPadding) {
  const std::vector<int32_t> tokens = FakeTokenizer().Encode("abb").value();
  const ClassNames classes{{"x", "y"}};
  const auto data = Load(Rows("{\"text\": \"abb\", \"label\": \"y\"}\n"), classes, /*pad=*/tokens.back());
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ(data->store.length(0), static_cast<int64_t>(tokens.size()) - 2);
}

TEST(Label, AnUnknownOneIsToldWithTheKnown) {
  const ClassNames classes{{"x", "y"}};
  const auto data = Load(Rows("{\"text\": \"ab\", \"label\": \"z\"}\n"), classes);
  ASSERT_FALSE(data.ok());
  EXPECT_NE(data.status().message().find("line 1: the label 'z' is none of the model's 2 classes ('x', 'y')"),
            std::string::npos)
      << data.status().message();
}

}  // namespace
}  // namespace temper::label_test
