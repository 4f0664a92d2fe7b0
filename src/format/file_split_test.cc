#include "format/file_split.h"

#include <gtest/gtest.h>

namespace temper::file_split_test {
namespace {

// The names that the datasets library documents (docs: "Structure your repository").
TEST(FileSplit, AFilesNameSaysWhichPartItHolds) {
  for (const char* name : {"train.jsonl", "data/train-00000-of-00002.json.gz", "my_training_file.csv", "train_1.tsv"}) {
    EXPECT_EQ(SplitOf(name), FileSplit::kTrain) << name;
  }
  for (const char* name : {"validation.jsonl", "valid.csv", "dev.json", "my-val.jsonl"}) {
    EXPECT_EQ(SplitOf(name), FileSplit::kValidation) << name;
  }
  for (const char* name : {"test.jsonl", "eval.csv", "pref/testing-0.json"}) {
    EXPECT_EQ(SplitOf(name), FileSplit::kTest) << name;
  }
  for (const char* name : {"trained.jsonl", "train/rows.jsonl", "tests.json", "a.jsonl", "latest.jsonl"}) {
    EXPECT_EQ(SplitOf(name), FileSplit::kOther) << name;
  }
  EXPECT_EQ(FilesOfSplit({"a/train.jsonl", "a/test.jsonl"}, SplitNamed("test")),
            std::vector<std::string>{"a/test.jsonl"});
}

}  // namespace
}  // namespace temper::file_split_test
