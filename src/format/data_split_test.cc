#include "format/data_split.h"

#include <gtest/gtest.h>

namespace temper::data_split_test {
namespace {

using Strings = std::vector<std::string>;

TEST(DataSplit, ANameTellsASplitAsOnTheHub) {
  const std::pair<const char*, const char*> cases[] = {
      {"data/train-00000-of-00005.parquet", "train"},
      {"train_sft-00000-of-00003-a3ecf92756993583.parquet", "train_sft"},
      {"en/valid-00001-of-00002.parquet", "validation"},
      {"saved/train/data-00000-of-00001.arrow", "train"},
      {"saved/train_sft/data-00000-of-00001.arrow", "train_sft"},
      {"0.0.0/abc/gsm8k-test.arrow", "test"},
      {"0.0.0/abc/ultra-train_sft-00000-of-00002.arrow", "train_sft"},
      {"0.0.0/abc/cache-0123456789abcdef.arrow", ""},
      {"train.jsonl", "train"},
      {"a/training.csv.gz", "train"},
      {"dev-2.json", "validation"},
      {"test_1.parquet", "test"},
      {"default/test/0000.parquet", "test"},
      {"train/part.jsonl", "train"},
      {"trained.jsonl", ""},
      {"data/part-00000.parquet", ""},
      {"rows.jsonl", ""},
      {"-00000-of-00001.parquet", ""},
      {"contest.jsonl", ""},
  };
  for (const auto& [path, split] : cases) EXPECT_EQ(SplitOfFile(path), split) << path;
}

TEST(DataSplit, TrainingTakesTrainAndOthersMustChoose) {
  const Strings files = {"d/test-00000-of-00001.parquet", "d/train-00000-of-00002.parquet",
                         "d/train-00001-of-00002.parquet"};
  const auto trained = ChooseSplit(files, "", /*for_training=*/true, "--data d");
  ASSERT_TRUE(trained.ok());
  EXPECT_EQ(trained->files, Strings(files.begin() + 1, files.end()));
  EXPECT_EQ(trained->split, "train");
  EXPECT_EQ(trained->others, Strings{"test"});
  EXPECT_EQ(ChooseSplit(files, "", /*for_training=*/false, "--data d").status().message(),
            "--data d has the splits test, train: name one (--split test, or PATH:split=test for this alone)");
  EXPECT_EQ(ChooseSplit(files, "testing", true, "--data d")->files, Strings{files[0]});
  EXPECT_EQ(ChooseSplit(files, "dev", true, "--data d").status().message(),
            "--data d has no split 'validation': its files belong to test, train");
}

TEST(DataSplit, FilesOfOneSplitOrNoneAreAllTaken) {
  for (const Strings& files : {Strings{"a.jsonl", "b.jsonl"}, {"a.jsonl", "train.jsonl"}}) {
    EXPECT_EQ(ChooseSplit(files, "", true, "--data d")->files, files);
    EXPECT_EQ(ChooseSplit(files, "", false, "--data d")->files, files);
  }
  EXPECT_EQ(ChooseSplit({"a.jsonl"}, "train", true, "--data d")->files, Strings{"a.jsonl"});
  EXPECT_EQ(ChooseSplit({"a.jsonl"}, "test", true, "--data d").status().message(),
            "--data d has no split 'test': no name of a file in it begins with that of a split");
}

}  // namespace
}  // namespace temper::data_split_test
