#include "format/data_split.h"

#include <gtest/gtest.h>

namespace temper::data_split_test {
namespace {

// The names that the datasets library documents (docs: "Structure your repository").
TEST(DataSplit, AFilesNameSaysWhichPartItHolds) {
  for (const char* name : {"train.jsonl", "data/train-00000-of-00002.json.gz", "my_training_file.csv", "train_1.tsv"}) {
    EXPECT_EQ(SplitOf(name), DataSplit::kTrain) << name;
  }
  for (const char* name : {"validation.jsonl", "valid.csv", "dev.json", "my-val.jsonl"}) {
    EXPECT_EQ(SplitOf(name), DataSplit::kValidation) << name;
  }
  for (const char* name : {"test.jsonl", "eval.csv", "pref/testing-0.json"}) {
    EXPECT_EQ(SplitOf(name), DataSplit::kTest) << name;
  }
  for (const char* name : {"trained.jsonl", "train/rows.jsonl", "tests.json", "a.jsonl", "latest.jsonl"}) {
    EXPECT_EQ(SplitOf(name), DataSplit::kOther) << name;
  }
  EXPECT_EQ(FilesOfSplit({"a/train.jsonl", "a/test.jsonl"}, SplitNamed("test")),
            std::vector<std::string>{"a/test.jsonl"});
}

}  // namespace
}  // namespace temper::data_split_test
